"""What follows once a transaction of the engine is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Ref
from orchestrator.core.gates import GLOBAL, crowd_key, gate_key
from orchestrator.crash import crash_point
from orchestrator.engine import ports
from orchestrator.engine.change import Claimed
from orchestrator.engine.gates import cache
from orchestrator.engine.work import Prepared
from orchestrator.models.rows import RunRow, StepRow


@dataclass(slots=True, kw_only=True)
class Settled:
    """What follows once a settle is committed: messages to send, outbox rows to handle, and the
    attempt that the lane claimed in the same transaction, with its ``company``."""

    run: RunRow
    workflow: CompiledWorkflow
    dispatch: list[Ref] = field(default_factory=list)
    posted: list[int] = field(default_factory=list)
    claim: Ref | None = None
    claim_row: StepRow | None = None
    prepared: Prepared | None = None
    at: datetime | None = None
    asked_at: float = 0.0
    company: list[Claimed] = field(default_factory=list)
    children: list[Settled] = field(default_factory=list)

    @property
    def run_id(self) -> UUID:
        """The run that was moved."""
        return self.run.id

    def send(self) -> None:
        """Send the wake-ups, the children's too; call after commit."""
        refs = self.admitted()
        if refs:
            crash_point("send:before")
            ports.dispatcher().dispatch(self.run, self.workflow, refs)
            crash_point("send:after")
        for child in self.children:
            child.send()

    def send_after(self, commit: Callable[[], None]) -> None:
        """Make the wake-ups while ``commit`` is under way, call it, then send them."""
        refs = self.admitted()
        if not refs:
            commit()
            return

        def committed() -> None:
            commit()
            crash_point("send:before")

        ports.dispatcher().dispatch_after(committed, self.run, self.workflow, refs)
        crash_point("send:after")

    def admitted(self) -> list[Ref]:
        """Those that a message is sent for, as far as the gates are known without a read: none
        before a shut one (a sweep parks it), and one for a queue that is crowded (a sweep sends
        the others when it is shorter)."""
        gates = cache.peek()
        if not gates.by_key or not self.dispatch:
            return self.dispatch
        sent: list[Ref] = []
        crowded: set[str] = set()
        for ref in self.dispatch:
            step = self.workflow.steps[ref.position]
            if step.queue in crowded or gates.is_shut(_keys(step)):
                continue
            if crowd_key(step.queue) in gates.by_key:
                crowded.add(step.queue)
            sent.append(ref)
        return sent


def send_all(many: Iterable[Settled]) -> None:
    """Send the wake-ups of many runs together; call after their commits."""
    found = [(one.run, one.workflow, refs) for one in many if (refs := one.admitted())]
    if found:
        crash_point("send:before")
        ports.dispatcher().dispatch_all(found)
        crash_point("send:after")


def _keys(step: StepPlan) -> tuple[str, ...]:
    own = step.gates if step.for_each is None else ()
    return (GLOBAL, gate_key("queue", step.queue), *own)
