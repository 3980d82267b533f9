"""Before a deploy: could this build go on with every run that is open? Reads only."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from orchestrator.core.decision import DECISIONS
from orchestrator.core.definition import parse_document
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.snapshot import unpack
from orchestrator.core.validation import Catalogue, validate
from orchestrator.engine.blueprints import compiled
from orchestrator.executors.registry import executor_problems, step_types
from orchestrator.models import Blueprint, open_rows

# What a step meets when it runs; other errors only say that publishing has become stricter.
BLOCKING = frozenset(
    {
        "unknown_tool",
        "unknown_model",
        "unknown_queue",
        "unknown_argument",
        "missing_argument",
        "type_mismatch",
        "effect_without_key",
        "not_literal",
        "unsafe_on_doubt",
    }
)


@dataclass(slots=True, kw_only=True)
class Compatibility:
    """What this build makes of one blueprint. ``blocking``: a run of it could not go on;
    ``stricter``: it would not be published today, yet it runs."""

    blueprint_id: int
    tenant: str
    name: str
    version: int
    digest: str
    n_open: int
    is_default: bool
    blocking: list[str] = field(default_factory=list)
    stricter: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """``ok``, ``stricter``, or ``cannot go on``."""
        if self.blocking:
            return "cannot go on"
        return "stricter" if self.stricter else "ok"


def check_compatibility(
    defaults: Iterable[int], catalogue_of: Callable[[str], Catalogue]
) -> Iterator[Compatibility]:
    """The blueprints of all open runs, and those of ``defaults`` (new runs would get them), against
    what is installed here: executors, tools with their arguments and flags, models, queues, the
    format of compact states, the rules of decisions."""
    wanted = set(defaults)
    runs = open_rows.open_runs()
    catalogue = lru_cache(maxsize=None)(catalogue_of)
    ids = sorted(wanted | runs.keys())
    for blueprint in Blueprint.objects.filter(pk__in=ids).defer("document").order_by("name", "id"):
        found = runs.get(blueprint.pk, open_rows.NONE)
        one = Compatibility(
            blueprint_id=blueprint.pk,
            tenant=blueprint.tenant,
            name=blueprint.name,
            version=blueprint.version,
            digest=blueprint.digest,
            n_open=found.n_runs,
            is_default=blueprint.pk in wanted,
        )
        _check_runs(one, found)
        _check_blueprint(one, blueprint, catalogue(blueprint.tenant))
        yield one


def _check_runs(one: Compatibility, found: open_rows.OpenRuns) -> None:
    for compact in found.one_of_each_format:
        try:
            unpack(compact)
        except (ValueError, struct.error) as error:
            one.blocking.append(str(error))
    newer = [number for number in found.decisions if number != DECISIONS]
    if newer:
        numbers = ", ".join(map(str, newer))
        one.blocking.append(
            f"runs decide by rules of version {numbers}, this build has {DECISIONS}"
        )


def _check_blueprint(one: Compatibility, blueprint: Blueprint, catalogue: Catalogue) -> None:
    try:
        compiled.__wrapped__(blueprint.pk)  # anew, and not as this process has it
    except OrchestratorError as error:
        one.blocking.append(str(error))
        return
    value = orjson.loads(bytes(blueprint.canonical))
    document, _ = parse_document(value)
    if document is None:
        return
    missing = {step.type for step in document.steps.values()} - set(step_types())
    one.blocking += [f"no executor for step type {kind}" for kind in sorted(missing)]
    one.blocking += executor_problems()
    one.blocking += _unpinned(one.tenant, blueprint.pins)
    for problem in validate(document, catalogue):
        if problem.severity != "error":
            continue
        words = f"{problem.pointer}: {problem.message}"
        (one.blocking if problem.code in BLOCKING else one.stricter).append(words)


def _unpinned(tenant: str, pins: dict[str, Any]) -> list[str]:
    """Children are what they were pinned to; a name may have gone since."""
    wanted = {digest for digest in pins.values() if digest != "self"}
    known = set(
        Blueprint.objects.filter(tenant=tenant, digest__in=wanted).values_list("digest", flat=True)
    )
    return [
        f"child workflow {name} is pinned to {digest[:12]}, which does not exist"
        for name, digest in sorted(pins.items())
        if digest != "self" and digest not in known
    ]
