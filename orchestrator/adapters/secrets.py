"""Secrets of tools and models: by name, from the environment or from files for now."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Protocol

from orchestrator.authoring import Permanent

_NOT_ALLOWED = re.compile(r"[^A-Z0-9]")


class SecretStore(Protocol):
    """Where secrets come from."""

    def read(self, *, tenant: str, name: str) -> str:
        """The secret called ``name``; ``Permanent`` when it is not set."""
        ...


class EnvironmentSecrets:
    """Secrets from the variables ``SECRET_<NAME>``: upper case, other signs become ``_``; or from
    the file that ``SECRET_<NAME>_FILE`` names, read at each use, so that it can be changed."""

    def read(self, *, tenant: str, name: str) -> str:
        """The variable's value; the same for every tenant."""
        del tenant
        variable = "SECRET_" + _NOT_ALLOWED.sub("_", name.upper())
        value = os.environ.get(variable)
        if value is None:
            value = _from_file(name, os.environ.get(f"{variable}_FILE"))
        if value is None:
            raise Permanent(
                f"secret {name!r} is not set: give the workers the environment variable {variable}"
            )
        return value


def _from_file(name: str, path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Permanent(f"secret {name!r}: its file cannot be read ({error})") from error


store: SecretStore = EnvironmentSecrets()
