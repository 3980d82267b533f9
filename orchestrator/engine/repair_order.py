"""What an operator asks for, and what is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import orjson

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.errors import InvalidRequest, NotFound

MAX_NAMED = 50


@dataclass(frozen=True, kw_only=True)
class Order:
    """One repair as asked for. ``token`` names the act: the same one again does nothing."""

    action: str
    step: str
    scope: str
    reason: str
    actor: str
    role: str
    token: str
    expected_version: int | None
    details: Mapping[str, Any]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what is asked; who asks, and having seen which version, is no part of it."""
        asked = [self.action, self.step, self.scope, self.reason, dict(self.details)]
        return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def position(self, workflow: CompiledWorkflow) -> int:
        """The step that is meant. InvalidRequest when none is named, NotFound when it is none."""
        if not self.step:
            raise refused("step", "name the step")
        position = workflow.by_key.get(self.step)
        if position is None or workflow.steps[position].undoes is not None:
            raise NotFound(f"the workflow has no step {self.step!r}")
        return position

    def event(
        self, workflow: CompiledWorkflow, *, reruns: list[str], index: int | None = None
    ) -> EventDraft:
        """The line of history that stands before everything the repair leads to."""
        ref = Ref(workflow.by_key[self.step], index) if self.step in workflow.by_key else None
        payload: dict[str, Any] = {"reason": self.reason[:500], "role": self.role}
        if reruns:
            payload["reruns"] = reruns[:MAX_NAMED]
        for name in ("from_sequence", "effect_key", "outcome", "with_dependents"):
            if self.details.get(name) is not None:
                payload[name] = self.details[name]
        return EventDraft(f"repair.{self.action}", ref, payload)


@dataclass(slots=True, kw_only=True)
class RepairReport:
    """What a repair did, or (``preview``) would do.

    ``reruns``: steps that had begun and run again; ``starts``: those that are READY at once.
    ``effects``: keys of the steps that run again, by what will happen: ``found`` (the receipt is
    there: nobody is called), ``called`` (it is known not to have happened), ``looked_up`` (in
    doubt), ``undone`` (they happened, and are undone). ``undoes``: finished steps that are undone;
    ``stays``: those behind them whose effects nothing can undo. ``cost_microusd``: what the steps
    that run again have cost so far; None: unknown, since a price was, or since steps that ask a
    model have yet to begin. ``replayed``: it had been done before, with the same token.
    """

    action: str
    step: str = ""
    scope: str = ""
    preview: bool = False
    state: str = ""
    state_version: int = 0
    reruns: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    undoes: list[str] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)
    effects: dict[str, list[str]] = field(default_factory=dict)
    cost_microusd: int | None = 0
    replayed: bool = False

    def stored(self) -> dict[str, Any]:
        """As it is kept with the audit row, to be answered again."""
        shape = asdict(self)
        del shape["replayed"]
        return shape


def refused(name: str, detail: str) -> InvalidRequest:
    """A field of the order that cannot be used."""
    return InvalidRequest(
        f"{name}: {detail}.",
        code="invalid_repair",
        problems=[{"pointer": f"/{name}", "code": "invalid_repair", "detail": f"{detail}."}],
    )
