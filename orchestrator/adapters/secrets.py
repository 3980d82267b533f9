"""Secrets of tools: by name, from the environment for now."""

from __future__ import annotations

import os
import re
from typing import Protocol

from orchestrator.authoring import Permanent

_NOT_ALLOWED = re.compile(r"[^A-Z0-9]")


class SecretStore(Protocol):
    """Where secrets come from."""

    def read(self, *, tenant: str, name: str) -> str:
        """The secret called ``name``; ``Permanent`` when it is not set."""
        ...


class EnvironmentSecrets:
    """Secrets from the variables ``SECRET_<NAME>``: upper case, other signs become ``_``."""

    def read(self, *, tenant: str, name: str) -> str:
        """The variable's value; the same for every tenant."""
        del tenant
        variable = "SECRET_" + _NOT_ALLOWED.sub("_", name.upper())
        value = os.environ.get(variable)
        if value is None:
            raise Permanent(
                f"secret {name!r} is not set: give the workers the environment variable {variable}"
            )
        return value


store: SecretStore = EnvironmentSecrets()
