"""A run is born: the row, the first steps and the first events, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict
from uuid import UUID

from orchestrator.clock import new_id
from orchestrator.core import planning
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import DECISIONS, Decision, EventDraft
from orchestrator.core.errors import InvalidRequest
from orchestrator.core.schemas import compile_schema
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.states import RunState
from orchestrator.engine import writing
from orchestrator.engine.change import Change
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.models import moves
from orchestrator.models.direct import Call, is_free
from orchestrator.models.rows import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What a new run is made of. ``parent`` and ``parent_step`` for a child, whose
    ``run_id`` its parent's history names already."""

    tenant: str
    blueprint_id: int
    workflow_name: str
    version: int
    input: Any
    actor: str
    correlation_id: str | None = None
    context: Any = None
    trigger: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str = ""
    parent: UUID | None = None
    parent_step: UUID | None = None
    depth: int = 0
    run_id: UUID | None = None


def check_input(workflow: CompiledWorkflow, data: Any) -> None:
    """InvalidRequest (``input_invalid``, with pointers) unless the input fits the document."""
    schema = workflow.input_schema if workflow.input_schema is not None else {"type": "object"}
    problems = compile_schema(schema).check(data)
    if problems:
        raise InvalidRequest(
            "the input does not fit the workflow's input schema",
            code="input_invalid",
            problems=[
                {"pointer": f"/input{p.pointer}", "code": "schema", "detail": p.message}
                for p in problems
            ],
        )


@dataclass(slots=True, kw_only=True)
class Newborn:
    """A run that is about to be written. ``is_plain``: one statement will do."""

    birth: Birth
    workflow: CompiledWorkflow
    run: RunRow
    decision: Decision

    @property
    def first_state(self) -> str:
        """What state the run is born in."""
        return str(self.decision.run_state)

    @property
    def stands_alone(self) -> bool:
        """Whether it can be written in a commit of its own: it is plain, and no transaction is
        open."""
        return self.is_plain and is_free()

    @property
    def is_plain(self) -> bool:
        """Whether it can be written in one statement, without a transaction around it."""
        return self.decision.is_plain


def conceive(birth: Birth, workflow: CompiledWorkflow) -> Newborn:
    """Decide what a new run starts with; nothing is written."""
    run = _row(birth, workflow)
    decision = planning.begin(workflow, Values(run, workflow))
    payload = {"workflow": birth.workflow_name, "version": birth.version, "decisions": DECISIONS}
    decision.events.insert(0, EventDraft("run.started", None, payload))
    decision.record_asked()
    return Newborn(birth=birth, workflow=workflow, run=run, decision=decision)


def deliver(newborn: Newborn, beside: Sequence[Call] = ()) -> UUID:
    """Write a plain run in a commit of its own, with what the caller writes ``beside`` it, and send
    its first messages; its id.

    They are made while the database writes, and sent once it has committed."""
    first = _first(newborn, newborn.decision)
    committed = moves.ask_begin(*first, **_limits(newborn), beside=beside)
    newborn.run.version = 1
    settled = Settled(
        run=newborn.run, workflow=newborn.workflow, dispatch=newborn.decision.dispatch
    )
    settled.send_after(committed)
    return newborn.run.id


def give_birth(newborn: Newborn) -> Settled:
    """Write the run, after ``check_input``; nothing is sent yet.

    Call inside a transaction. A run whose first steps are skipped, fail
    or end it at once is born at rest and then moved by its first decision.
    """
    run, workflow, decision = newborn.run, newborn.workflow, newborn.decision
    change = Change(run=run, workflow=workflow, decision=decision, actor=newborn.birth.actor)
    first = decision if newborn.is_plain else _at_rest(decision, run)
    moves.begin_run(*_first(newborn, first), **_limits(newborn))
    run.version = 1
    if not newborn.is_plain:
        decision.events.pop(0)
        values = Values(run, workflow)
        writing.write(change, values)
        writing.write_beside(change, values)
    return Settled(run=run, workflow=workflow, dispatch=decision.dispatch, posted=change.posted)


def _first(newborn: Newborn, decision: Decision) -> tuple[RunRow, moves.Write]:
    change = Change(
        run=newborn.run,
        workflow=newborn.workflow,
        decision=decision,
        actor=newborn.birth.actor,
    )
    return newborn.run, writing.birth_write(change)


def _limits(newborn: Newborn) -> _Limits:
    workflow = newborn.workflow
    return {
        "context": newborn.birth.context,
        "time_limit": timedelta(seconds=workflow.timeout_s),
        "is_wall": workflow.timeout_is_wall,
    }


class _Limits(TypedDict):
    context: Any
    time_limit: timedelta
    is_wall: bool


def _at_rest(decision: Decision, run: RunRow) -> Decision:
    return Decision(snapshot=run.snapshot, run_state=RunState.PENDING, events=[decision.events[0]])


def _row(birth: Birth, workflow: CompiledWorkflow) -> RunRow:
    run_id = birth.run_id or new_id()
    return RunRow(
        id=run_id,
        tenant=birth.tenant,
        blueprint_id=birth.blueprint_id,
        workflow=birth.workflow_name,
        workflow_version=birth.version,
        state=RunState.PENDING,
        version=0,
        snapshot=Snapshot.fresh(len(workflow.steps), len(workflow.edges)),
        input=birth.input,
        trigger=dict(birth.trigger),
        started_by=birth.actor,
        correlation_id=birth.correlation_id or str(run_id),
        traceparent=birth.traceparent,
        depth=birth.depth,
        parent_id=birth.parent,
        parent_step=birth.parent_step,
    )
