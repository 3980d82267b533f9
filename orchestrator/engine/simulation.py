"""A workflow simulated: what a run would do, ask, make, cost and take; nothing is stored or called.

It is played twice, by what half of the earlier runs stayed below and by what 95 of 100 did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.conf import engine_settings
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.errors import ErrorClass, InvalidRequest, NotFound, StepError
from orchestrator.core.outcomes import Failed, StartChild
from orchestrator.core.simulating import TooLong
from orchestrator.core.simulation_answers import Answers, read_answers
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.states import RunState
from orchestrator.engine.births import check_input
from orchestrator.engine.blueprints import SELF, compiled
from orchestrator.engine.paper_bodies import Recorded
from orchestrator.engine.paper_setting import HIGH, MIDDLE, PaperSetting
from orchestrator.engine.paper_world import PaperRun, Seen
from orchestrator.engine.reading import database_now
from orchestrator.engine.simulation_report import Simulation, report
from orchestrator.models import Blueprint, Run, Step
from orchestrator.models.rows import RunRow

MAX_ANSWERS = 2_000
"""How many answers a simulation may ask for, children included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be simulated. ``blueprint_id`` 0: a document that is not published. ``recorded``:
    a run of the tenant whose input and answers are taken, as far as others are not given."""

    tenant: str
    actor: str
    workflow: CompiledWorkflow
    version: int = 0
    blueprint_id: int = 0
    input: Any = None
    answers: Any = field(default_factory=dict)
    recorded: Run | None = None
    correlation_id: str = ""


def simulate(wanted: Wanted, *, max_answers: int = MAX_ANSWERS) -> Simulation:
    """What a run would come to. Reads only.

    Raises InvalidRequest: the input breaks the schema (``input_invalid``), the answers do not fit
    (``invalid_answers``), the run would ask for too many (``simulation_too_long``).
    """
    check_input(wanted.workflow, wanted.input)
    answers = read_answers(wanted.answers, wanted.workflow)
    middle = _setting(wanted, MIDDLE, max_answers)
    high = _setting(wanted, HIGH, max_answers)
    high.started_at, high.figures = middle.started_at, middle.figures
    try:
        played = [_played(wanted, answers, setting) for setting in (middle, high)]
    except TooLong:
        raise InvalidRequest(
            f"The run would ask for more than {max_answers} answers: give it fewer items.",
            code="simulation_too_long",
            problems=[],
        ) from None
    return report(played[0], played[1])


def _setting(wanted: Wanted, pick: int, max_answers: int) -> PaperSetting:
    return PaperSetting(
        tenant=wanted.tenant,
        started_at=database_now(),
        left=max_answers,
        pick=pick,
        recorded=[] if wanted.recorded is None else [wanted.recorded.id],
    )


def _played(wanted: Wanted, answers: Answers, setting: PaperSetting) -> PaperRun:
    stored = wanted.recorded
    run = RunRow(
        id=UUID(int=0) if stored is None else stored.id,
        tenant=wanted.tenant,
        blueprint_id=wanted.blueprint_id,
        workflow=wanted.workflow.name,
        workflow_version=wanted.version,
        state=RunState.PENDING,
        version=0,
        snapshot=_fresh(wanted.workflow),
        input=wanted.input,
        trigger={"type": "simulation"} if stored is None else stored.trigger,
        started_by=wanted.actor,
        correlation_id=wanted.correlation_id or _correlation(stored),
        traceparent="",
        depth=0,
        parent_id=None,
        parent_step=None,
    )
    paper = PaperRun(
        run,
        wanted.workflow,
        setting=setting,
        answers=answers,
        recorded={} if stored is None else _recorded(stored.id),
        begins_at=0.0,
        start_child=_start_child,
    )
    paper.paper.play()
    return paper


def _fresh(workflow: CompiledWorkflow) -> Snapshot:
    return Snapshot.fresh(len(workflow.steps), len(workflow.edges))


def _correlation(stored: Run | None) -> str:
    return "simulation" if stored is None else stored.correlation_id


def _recorded(run_id: UUID) -> Mapping[str, Recorded]:
    """What the steps of a stored run answered, by key with scope."""
    children = dict(Run.objects.filter(parent_id=run_id).values_list("parent_step", "id"))
    found = Step.objects.filter(run_id=run_id)
    return {
        key + scope: Recorded(state=state, output=output, error=error, child=children.get(step_id))
        for step_id, key, scope, state, output, error in found.values_list(
            "id", "key", "scope", "state", "output", "error"
        )
    }


def _start_child(parent: PaperRun, seen: Seen, wish: StartChild, at: float) -> PaperRun | Failed:
    """The child on paper, about to be played; or why there is none."""
    limit = engine_settings().max_depth
    if parent.run.depth >= limit:
        return _failed(ErrorClass.PERMANENT, f"sub-workflows are nested deeper than {limit}")
    try:
        blueprint_id, workflow = _child_of(parent, wish)
        check_input(workflow, wish.input)
    except NotFound as error:
        return _failed(ErrorClass.PERMANENT, str(error))
    except InvalidRequest as error:
        first = error.problems[0]
        return _failed(ErrorClass.SCHEMA_ERROR, f"{wish.name}{first['pointer']}: {first['detail']}")
    inner = parent.answers.inner.get(seen.name) or parent.answers.inner.get(seen.step.key) or {}
    stored = parent.recorded.get(seen.name)
    child = None if stored is None else stored.child
    if child is not None and child not in parent.setting.recorded:
        parent.setting.recorded.append(child)
    return PaperRun(
        _child_row(parent, seen, wish, blueprint_id, workflow, child),
        workflow,
        setting=parent.setting,
        answers=read_answers(inner, workflow, prefix=f"{seen.step.key}/"),
        recorded={} if child is None else _recorded(child),
        begins_at=parent.begins_at + at,
        start_child=_start_child,
    )


def _failed(error_class: ErrorClass, message: str) -> Failed:
    return Failed(error=StepError(error_class=error_class, message=message))


def _child_of(parent: PaperRun, wish: StartChild) -> tuple[int, CompiledWorkflow]:
    pin = parent.workflow.pins.get(wish.name)
    if pin == SELF:
        return parent.run.blueprint_id, parent.workflow
    found = Blueprint.objects.filter(tenant=parent.run.tenant, digest=pin).values_list(
        "pk", flat=True
    )
    blueprint_id = found.first()
    if blueprint_id is None:
        raise NotFound(f"child workflow {wish.name} is not published")
    return blueprint_id, compiled(blueprint_id)


def _child_row(
    parent: PaperRun,
    seen: Seen,
    wish: StartChild,
    blueprint_id: int,
    workflow: CompiledWorkflow,
    stored: UUID | None,
) -> RunRow:
    run = parent.run
    return RunRow(
        id=stored or UUID(int=0),
        tenant=run.tenant,
        blueprint_id=blueprint_id,
        workflow=workflow.name,
        workflow_version=0,
        state=RunState.PENDING,
        version=0,
        snapshot=_fresh(workflow),
        input=wish.input,
        trigger={"type": "parent", "run": str(run.id), "step": seen.name},
        started_by=run.started_by,
        correlation_id=run.correlation_id,
        traceparent="",
        depth=run.depth + 1,
        parent_id=run.id,
        parent_step=None,
    )
