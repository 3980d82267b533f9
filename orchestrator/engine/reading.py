"""Reading a run for people: its steps, progress, budget, and why it stands where it stands.

Reading only, with a bounded number of queries whatever the run's size. The pieces are read one
after the other; a step's own row, where there is one, is newer than the compact state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.durations import parse_duration, parse_money
from orchestrator.core.snapshot import Snapshot, unpack
from orchestrator.core.states import RUN_TERMINAL, RUN_WORKING, RunState, StepState
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.explaining import explain
from orchestrator.engine.explaining_steps import Reasons
from orchestrator.engine.pictures import BudgetPicture, Overview, Progress, RunPicture, StepPicture
from orchestrator.models import (
    Blueprint,
    Event,
    Gate,
    ReplayCheck,
    Run,
    Step,
    StepDefinition,
    Timer,
)

ITEMS_SHOWN = 100
"""Up to so many items of a for_each are shown with the run (FORMAT section 4, Loops)."""

ITEMS_SHOWN_IN_ALL = 1000
_HEAVY = ("input", "output", "previous", "item")

# The states are written out so that the partial index over open runs serves the first four.
_OVERVIEW = """
SELECT count(*) FILTER (WHERE state IN ('pending', 'running', 'compensating')),
       count(*) FILTER (WHERE state = 'waiting' AND waiting_for = 'person'),
       count(*) FILTER (WHERE waiting_for = 'review'),
       count(*) FILTER (WHERE state = 'waiting'),
       count(*) FILTER (WHERE state = 'paused'),
       (SELECT count(*) FROM orchestrator_run
         WHERE state IN ('failed', 'timed_out')
           AND finished_at > orchestrator_now() - interval '24 hours'),
       (SELECT count(*) FROM orchestrator_alert WHERE closed_at IS NULL)
  FROM orchestrator_run
 WHERE state IN ('compensating', 'paused', 'pending', 'running', 'waiting')
"""
_LIGHT = (
    "id",
    "workflow",
    "workflow_version",
    "state",
    "compensation",
    "parent_step",
    "created_at",
)
_PARKED = (StepState.WAITING, StepState.RETRYING)


class _Face(NamedTuple):
    """The parts of a document that matter to people only; immutable like its blueprint."""

    labels: Mapping[str, str]
    budget: Mapping[str, Any] | None
    order: Mapping[str, int]


def picture(run: Run) -> RunPicture:
    """The run as ``GET /v1/workflows/{id}`` and the console show it; at most ten queries."""
    now, face = database_now(), _face(run.blueprint_id)
    event = _telling_event(run)
    children = tuple(_children(run))
    steps = tuple(_steps(run, children, now))
    worked = _worked(run, now)
    return RunPicture(
        run=run,
        now=now,
        title=compiled(run.blueprint_id).title,
        label=face.labels.get(run.state, ""),
        why=explain(run, steps, event=event, now=now),
        steps=steps,
        progress=_progress(step for step in steps if not step.scope),
        elapsed=(run.finished_at or now) - run.created_at,
        worked=worked,
        budget=_budget(face.budget, run, worked),
        summary=event.payload.get("summary") if event and run.state in RUN_TERMINAL else None,
        children=children,
        replay=ReplayCheck.objects.filter(pk=run.id).first(),
    )


def database_now() -> datetime:
    """The engine's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT orchestrator_now()")
        row = cursor.fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


def overview() -> Overview:
    """How many runs are under way, wait, and have failed within 24 hours, and how many alerts are
    open; one cheap query.

    Only open runs and those of the last day are looked at, each by an index.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OVERVIEW)
        row = cursor.fetchone()
    assert row is not None
    running, person, review, waiting, paused, failed, alerts = row
    return Overview(
        running=running,
        waiting_for_person=person,
        waiting_for_review=review,
        waiting=waiting,
        paused=paused,
        failed_lately=failed,
        open_alerts=alerts,
    )


def failed_lately() -> Q:
    """Runs that failed, or ran out of time, within 24 hours by the engine's clock."""
    since = database_now() - timedelta(hours=24)
    return Q(state__in=(RunState.FAILED, RunState.TIMED_OUT), finished_at__gt=since)


def step_items(run: Run, key: str) -> QuerySet[Step]:
    """The items of a for_each that have rows, without their data; page by ``index``."""
    return Step.objects.filter(run=run, key=key, index__isnull=False).defer(*_HEAVY)


def item_pictures(run: Run, rows: Sequence[Step]) -> list[StepPicture]:
    """Items as people see them: the answer for one page of ``step_items``."""
    plans = compiled(run.blueprint_id).steps
    due = _due(rows)
    ids = [row.id for row in rows]
    started = list(
        Run.objects.filter(parent=run, parent_step__in=ids).only(*_LIGHT).order_by("-id")
    )
    children = _newest(started)
    shown = [
        _from_row(row, plans[row.position], until=due.get(row.id), child=children.get(row.id))
        for row in rows
    ]
    reasons = _reasons(run, started, {}, database_now())
    return [replace(step, sentence=reasons.of(step)) for step in shown]


# -- steps -----------------------------------------------------------------------------------------


def _steps(run: Run, started: Sequence[Run], now: datetime) -> Iterator[StepPicture]:
    """Every step in the document's order, small loops followed by their items."""
    workflow, snapshot = compiled(run.blueprint_id), unpack(run.compact)
    plain = Step.objects.filter(run=run, scope="").defer(*_HEAVY)
    rows = {row.position: row for row in plain}
    loops = [row for row in rows.values() if row.items_total is not None]
    counts, shown = _item_counts(run, loops), _items_shown(run, loops)
    items = [item for group in shown.values() for item in group]
    due = _due([*rows.values(), *items])
    order, children = _face(run.blueprint_id).order, _newest(started)
    reasons = _reasons(run, started, _undoing(workflow, rows, due), now)
    for plan in sorted(workflow.forward, key=lambda plan: order.get(plan.key, 0)):
        row = rows.get(plan.position)
        if row is None:
            blank = _without_row(plan, snapshot)
            yield replace(blank, sentence=reasons.of(blank))
            continue
        for each in [row, *shown.get(plan.position, ())]:
            step = _from_row(
                each,
                plan,
                until=due.get(each.id),
                child=children.get(each.id),
                items=counts.get(plan.position) if each is row else None,
            )
            yield replace(step, sentence=reasons.of(step))


def _newest(started: Iterable[Run]) -> dict[UUID, UUID]:
    """The newest run that each step has started."""
    found: dict[UUID, UUID] = {}
    for child in started:  # newest first
        if child.parent_step is not None:
            found.setdefault(child.parent_step, child.id)
    return found


def _undoing(
    workflow: CompiledWorkflow, rows: Mapping[int, Step], due: Mapping[UUID, datetime]
) -> dict[int, StepPicture]:
    """The compensations that have begun, by the position of the step that each undoes."""
    return {
        plan.undoes: _from_row(row, plan, until=due.get(row.id), child=None)
        for plan in workflow.compensations
        if plan.undoes is not None and (row := rows.get(plan.position)) is not None
    }


def _reasons(
    run: Run, started: Iterable[Run], undoing: Mapping[int, StepPicture], now: datetime
) -> Reasons:
    return Reasons(
        workflow=compiled(run.blueprint_id),
        snapshot=unpack(run.compact),
        state=RunState(run.state),
        now=now,
        undoing=undoing,
        children={child.id: _how(child) for child in started},
    )


def _how(child: Run) -> str:
    """How a child stands, as the middle of a sentence."""
    if child.state == RunState.PAUSED and child.compensation:
        return "paused, and some of it was undone, so that it can only be cancelled"
    return child.state


def _without_row(plan: StepPlan, snapshot: Snapshot) -> StepPicture:
    """A step that never began: blocked, skipped or cancelled."""
    state = snapshot.state(plan.position)
    return StepPicture(
        id=None,
        key=plan.key,
        scope="",
        position=plan.position,
        type=plan.type,
        title=plan.config.get("title") or "",
        label=(plan.config.get("labels") or {}).get(state, ""),
        queue=plan.queue,
        state=state,
    )


def _from_row(
    row: Step,
    plan: StepPlan,
    *,
    until: datetime | None,
    child: UUID | None,
    items: Mapping[str, int] | None = None,
) -> StepPicture:
    parked = row.state in _PARKED
    return StepPicture(
        id=row.id,
        key=row.key,
        scope=row.scope,
        position=row.position,
        type=row.type,
        title=plan.config.get("title") or "",
        label=(plan.config.get("labels") or {}).get(row.state, ""),
        queue=row.queue,
        state=StepState(row.state),
        attempt=row.attempt,
        round=row.round,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cost_microusd=row.cost_microusd,
        tokens=row.tokens_in + row.tokens_out,
        model=row.model,
        worker=row.worker if row.state == StepState.RUNNING else "",
        error=row.error,
        covered_by=row.covered_by,
        waiting_for=row.waiting_for if parked else "",
        waiting_key=row.waiting_key if parked else "",
        why=row.why if parked else "",
        ready_at=row.ready_at,
        dispatched_at=row.dispatched_at,
        lease_until=row.lease_until,
        until=until,
        items=items,
        child=child,
    )


def _item_counts(run: Run, loops: Sequence[Step]) -> dict[int, dict[str, int]]:
    """Items by state for each loop. Items without a row have not been released yet."""
    if not loops:
        return {}
    found: dict[int, Counter[str]] = {row.position: Counter() for row in loops}
    grouped = (
        Step.objects.filter(run=run, index__isnull=False)
        .values_list("position", "state")
        .annotate(n=Count("id"))
    )
    for position, state, n in grouped:
        found.setdefault(position, Counter())[state] += n
    for row in loops:
        missing = (row.items_total or 0) - found[row.position].total()
        if missing > 0:
            over = row.state not in (StepState.RUNNING, StepState.READY)
            left = StepState.CANCELLED if over else StepState.BLOCKED
            found[row.position][str(left)] += missing
    return {position: dict(count) for position, count in found.items()}


def _items_shown(run: Run, loops: Sequence[Step]) -> dict[int, list[Step]]:
    small, total = [], 0
    for row in loops:
        n = row.items_total or 0
        if n <= ITEMS_SHOWN and total + n <= ITEMS_SHOWN_IN_ALL:
            small.append(row.position)
            total += n
    shown: dict[int, list[Step]] = {}
    if small:
        rows = Step.objects.filter(run=run, index__isnull=False, position__in=small)
        for row in rows.defer(*_HEAVY).order_by("position", "index"):
            shown.setdefault(row.position, []).append(row)
    return shown


def _due(rows: Sequence[Step]) -> dict[UUID, datetime]:
    """When each wait ends, or is looked at again, as far as that is known."""
    parked = [row for row in rows if row.state in _PARKED]
    due = _timers([row.id for row in parked])
    before = [row for row in parked if row.waiting_for == "service"]
    if before:
        gates = Gate.objects.filter(key__in={row.waiting_key for row in before})
        looks = {key: at for key, at in gates.values_list("key", "look_at") if at is not None}
        due |= {row.id: looks[row.waiting_key] for row in before if row.waiting_key in looks}
    return due


def _timers(step_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    if not step_ids:
        return {}
    return dict(Timer.objects.filter(step__in=step_ids).values_list("step_id", "fire_at"))


# -- the run ---------------------------------------------------------------------------------------


def _children(run: Run) -> QuerySet[Run]:
    """The newest runs that this one has started, without their data."""
    return Run.objects.filter(parent=run).only(*_LIGHT).order_by("-id")[:ITEMS_SHOWN_IN_ALL]


_TELLING = {
    RunState.PAUSED: "run.paused",
    RunState.COMPLETED: "run.completed",
    RunState.FAILED: "run.failed",
    RunState.CANCELLED: "run.cancelled",
    RunState.TIMED_OUT: "run.timed_out",
}


def _telling_event(run: Run) -> Event | None:
    """The event that brought the run into a state that somebody or something decided."""
    kind = _TELLING.get(RunState(run.state))
    if kind is None:
        return None
    return Event.objects.filter(run_id=run.id, type=kind).order_by("-seq").first()


def _progress(steps: Iterable[StepPicture]) -> dict[str, Progress]:
    groups: dict[str, list[StepPicture]] = {}
    for step in steps:
        groups.setdefault(str(step.state), []).append(step)
    return {
        state: Progress(
            count=len(group),
            earliest_start=min((s.started_at for s in group if s.started_at), default=None),
            latest_end=max((s.finished_at for s in group if s.finished_at), default=None),
        )
        for state, group in groups.items()
    }


def _worked(run: Run, now: datetime) -> timedelta:
    """Working time: what was booked, and the stretch under way."""
    if run.working_since is None or RunState(run.state) not in RUN_WORKING:
        return run.worked
    return run.worked + (now - run.working_since)


def _budget(
    declared: Mapping[str, Any] | None, run: Run, worked: timedelta
) -> BudgetPicture | None:
    if not declared:
        return None
    cost = declared.get("cost_usd")
    limit = None if cost is None else parse_money(cost)
    length = declared.get("duration")
    duration = None if length is None else parse_duration(length)
    return BudgetPicture(
        cost_microusd=limit,
        duration=duration,
        on_exceeded=declared.get("on_exceeded", "pause"),
        remaining_microusd=None if limit is None else max(0, limit - run.cost_microusd),
        remaining=None if duration is None else max(timedelta(), duration - worked),
    )


@lru_cache(maxsize=512)
def _face(blueprint_id: int) -> _Face:
    rows = Blueprint.objects.filter(pk=blueprint_id)
    labels, budget = rows.values_list("document__labels", "document__budget").get()
    # The compiled workflow goes by the canonical order of keys; people wrote another one.
    keys = StepDefinition.objects.filter(blueprint=blueprint_id).order_by("position")
    order = {key: place for place, key in enumerate(keys.values_list("key", flat=True))}
    return _Face(labels=labels or {}, budget=budget, order=order)
