"""Aliases of models as operators set them: ``fast`` leads to these models, in this order."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from django.db import transaction

from orchestrator.adapters.llm import models
from orchestrator.conf import engine_settings
from orchestrator.core.errors import InvalidRequest
from orchestrator.core.gates import gate_key, model_gates
from orchestrator.crash import Unit
from orchestrator.models import alias_rows

ALIAS = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
MAX_TARGETS = 10
MAX_TEXT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasPicture:
    """An alias: where it leads, and whether the console or the settings say so."""

    name: str
    targets: tuple[str, ...]
    from_console: bool


class _Cache:
    """What the console has set, as this process last saw it. Looking is free and reads nothing;
    whoever is about to ask a model, or to publish, has it read again when it is a second old."""

    def __init__(self) -> None:
        self._found: Mapping[str, Sequence[str]] = {}
        self._read_at = float("-inf")

    def now(self) -> Mapping[str, Sequence[str]]:
        """The aliases of the console."""
        return self._found

    def refresh(self) -> None:
        """Read them again if they are old."""
        if time.monotonic() - self._read_at >= engine_settings().gates_fresh.total_seconds():
            self._found = alias_rows.newest()
            self._read_at = time.monotonic()

    def forget(self) -> None:
        """Read again at the next opportunity."""
        self._read_at = float("-inf")


cache = _Cache()


def model_aliases() -> list[AliasPicture]:
    """All aliases, by name."""
    cache.forget()
    cache.refresh()
    console = cache.now()
    return [
        AliasPicture(
            name=name,
            targets=tuple(target.name for target in models.targets(name)),
            from_console=name in console,
        )
        for name in models.aliases()
    ]


def set_model_alias(name: str, targets: Sequence[str], *, reason: str, actor: str) -> None:
    """Let an alias lead to ``provider:model`` names in this order of fail-over; none: what the
    settings say stands again. Calls that begin a second later go there, and steps that wait for a
    model behind the alias look anew. Joins or opens a transaction. Raises InvalidRequest."""
    cache.refresh()
    _check(name, targets, reason)
    before = [target.name for target in models.targets(name)]
    with Unit("set_model_alias"):
        alias_rows.insert(name, targets, actor=actor, reason=reason)
        gates = [gate for target in before for gate in model_gates(target)]
        gates += [gate_key("model", target) for target in before]
        alias_rows.line_up(gates, gate_key("model", name))
        transaction.on_commit(cache.forget)


def _check(name: str, targets: Sequence[str], reason: str) -> None:
    if not ALIAS.fullmatch(name):
        _refuse("name", "bad_alias", "an alias is lower-case letters, digits, dots, dashes")
    if not reason.strip() or len(reason) > MAX_TEXT:
        _refuse("reason", "bad_reason", f"a reason is needed, at most {MAX_TEXT} characters")
    if len(targets) > MAX_TARGETS:
        _refuse("targets", "too_many", f"at most {MAX_TARGETS} models")
    if len(set(targets)) != len(targets):
        _refuse("targets", "twice", "a model stands there twice")
    wrong = [each for each in targets if ":" not in each or not models.has_model(each)]
    if wrong:
        known = ", ".join(models.provider_names())
        _refuse(
            "targets",
            "unknown_model",
            f"{wrong[0]!r} is no provider:model that this installation has; providers: {known}",
        )
    if not targets and name not in models.aliases():
        _refuse("name", "unknown_alias", f"there is no alias {name!r} to give back")


def _refuse(field: str, code: str, message: str) -> NoReturn:
    problem = {"pointer": f"/{field}", "code": code, "detail": message}
    raise InvalidRequest(f"{field}: {message}", code=code, problems=[problem])
