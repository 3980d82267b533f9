"""The run's decisions, by the real planning over packed bytes; each is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from orchestrator.core import planning, repairing
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.definition import parse_document
from orchestrator.core.errors import StateConflict
from orchestrator.core.outcomes import Outcome
from orchestrator.core.repairing import Wish
from orchestrator.core.settling import Fact
from orchestrator.core.snapshot import Snapshot, unpack

QUEUES = {"tool": "tool"}


class Decided(NamedTuple):
    """A decision as the world keeps it. ``to``: where the step of the fact went; ``sent``: steps
    that a message goes out for; ``cancelled``: steps that lose their fence."""

    snapshot: bytes
    run: str
    waiting: str
    to: str
    sent: tuple[int, ...]
    cancelled: tuple[int, ...]


class Always:
    """Edges without conditions hold."""

    def see(self, snapshot: Snapshot) -> None:
        pass

    def edge(self, edge: Any) -> bool:
        return True

    def step(self, position: int) -> bool:
        return True

    def until(self, ref: Ref, output: Any) -> bool:
        return True

    def cover(self, owner: int, fallback: int) -> None:
        pass


def workflow_of(tool: str, *, side_by_side: bool) -> CompiledWorkflow:
    """Two steps with one effect: one after the other, or side by side."""
    plain = {"type": "tool", "tool": tool, "effect": {"key": "pay"}, "retry": {"max_retries": 1}}
    after = {} if side_by_side else {"needs": ["a"]}
    value = {
        "schema": "orchestrator/v1",
        "name": "model",
        "steps": {"a": plain, "b": {**plain, **after}},
    }
    document, problems = parse_document(value)
    assert document is not None, problems
    return compile_workflow(document, value, queues=QUEUES, pins={})


class Planner:
    """Planning of one workflow."""

    def __init__(self, workflow: CompiledWorkflow) -> None:
        self.workflow = workflow
        self._outcomes: dict[str, Outcome] = {}
        self.settle = lru_cache(maxsize=None)(self._settle)
        self.act = lru_cache(maxsize=None)(self._act)
        self.codes = lru_cache(maxsize=None)(self._codes)

    def begin(self) -> Decided:
        return _decided(planning.begin(self.workflow, Always()))

    def name(self, outcome: Outcome) -> str:
        """A name that ``settle`` knows the outcome by."""
        name = repr(outcome)
        self._outcomes.setdefault(name, outcome)
        return name

    def _codes(self, packed: bytes) -> tuple[str, ...]:
        snapshot = unpack(packed)
        return tuple(str(snapshot.state(n)) for n in range(len(self.workflow.steps)))

    def _settle(
        self, packed: bytes, step: int, outcome: str, waited: str, n_retries: int, n_lost: int
    ) -> Decided:
        fact = Fact(
            ref=Ref(step),
            outcome=self._outcomes[outcome],
            waited_for=waited,
            n_retries=n_retries,
            n_lost=n_lost,
        )
        return _decided(planning.settle(self.workflow, unpack(packed), fact, Always()))

    def _act(self, packed: bytes, word: str, step: int) -> Decided | None:
        """Another decision by its word; None where planning refuses it."""
        acts: dict[str, Callable[[Snapshot, Ref], Decision | None]] = {
            "claim": lambda s, ref: planning.claim(self.workflow, s, ref),
            "wake": lambda s, ref: planning.wake(self.workflow, s, ref, retries=True),
            "redispatch": lambda s, ref: planning.redispatch(self.workflow, s, [ref]),
            "cancel": lambda s, ref: planning.cancel(self.workflow, s, reason="r"),
            "send back": self._send_back,
        }
        try:
            decision = acts[word](unpack(packed), Ref(step))
        except StateConflict:
            return None
        return None if decision is None else _decided(decision)

    def _send_back(self, snapshot: Snapshot, ref: Ref) -> Decision:
        stored = repairing.stored_state((), {})
        wish = Wish(workflow=self.workflow, snapshot=snapshot, stored=stored, conditions=Always())
        return repairing.send_back(wish, ref)


def _decided(decision: Decision) -> Decided:
    subject = decision.subject
    return Decided(
        snapshot=decision.snapshot.pack(),
        run=str(decision.run_state),
        waiting=decision.waiting_for,
        to=str(subject.to) if subject is not None else "",
        sent=tuple(ref.position for ref in (*decision.dispatch, *decision.carried)),
        cancelled=tuple(decision.cancelled),
    )
