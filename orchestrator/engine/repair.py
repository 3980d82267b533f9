"""Repair: what an operator does to a run, narrowly, once for each token, with the audit in the
same transaction. ``core.repairing`` decides; a preview decides too, and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import planning, repairing
from orchestrator.core.decision import Decision
from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict
from orchestrator.core.repairing import Wish
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState
from orchestrator.crash import Unit
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.repair_effects import settle_in_doubt
from orchestrator.engine.repair_order import Order, RepairReport, refused
from orchestrator.engine.repair_preview import foresee
from orchestrator.engine.repair_undo import decide_undo
from orchestrator.engine.settle import apply_change, close_loops
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.models import outbox_rows, repair_rows, rows, timer_rows
from orchestrator.models.rows import RunRow, StepRow

_HALTED = frozenset({RunState.FAILED, RunState.PAUSED})
_UNDO = "compensate_step"
_STATES: Mapping[str, frozenset[RunState]] = {
    _UNDO: RUN_TERMINAL | {RunState.PAUSED},
    "retry_step": _HALTED,
    "resume": _HALTED | {RunState.CANCELLED},
    "skip_step": _HALTED | {RunState.PENDING, RunState.RUNNING, RunState.WAITING},
}
ACTIONS = (*_STATES, "settle_effect")


def repair_run(  # noqa: PLR0913 - an order is made of this much; keyword-only
    run_id: UUID,
    *,
    action: str,
    reason: str,
    actor: str,
    token: str,
    role: str = "",
    step: str = "",
    scope: str = "",
    expected_version: int | None = None,
    preview: bool = False,
    details: Mapping[str, Any] | None = None,
) -> RepairReport:
    """Do one repair, or (``preview``) say what it would do; opens or joins a transaction.

    ``details``: ``from_sequence`` for ``resume``; ``with_dependents`` for ``compensate_step``;
    ``effect_key``, ``outcome``, ``external_ref``,
    ``output`` for ``settle_effect``. The same token again answers what was done then
    (``replayed``). Raises NotFound (run, step, effect), InvalidRequest, and StateConflict with a
    ``code`` that says what forbids it: ``stale_version``, ``not_failed``, ``not_optional`` …
    """
    order = Order(
        action=action,
        step=step,
        scope=scope,
        reason=reason,
        actor=actor,
        role=role,
        token=token,
        expected_version=expected_version,
        details=dict(details or {}),
    )
    with Unit("repair"):
        run = rows.lock_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        earlier = None if preview else _earlier(run_id, order)
        if earlier is not None:
            return earlier
        _check_version(run, order)
        act = _Act(run, order)
        return act.previewed() if preview else act.done()


def _earlier(run_id: UUID, order: Order) -> RepairReport | None:
    found = repair_rows.find_repair(run_id, order.token)
    if found is None:
        return None
    fingerprint, result = found
    if fingerprint != order.fingerprint:
        raise InvalidRequest(
            "this Idempotency-Key was used for another repair of the run: use a new one",
            code="idempotency_key_reused",
        )
    return RepairReport(**result, replayed=True)


def _check_version(run: RunRow, order: Order) -> None:
    if order.expected_version is not None and order.expected_version != run.version:
        raise StateConflict(
            f"the run has moved on since you looked at it: it is {run.state} at version"
            f" {run.version}, not {order.expected_version}",
            state=run.state,
            code="stale_version",
        )


class _Act:
    """One repair of a locked run."""

    def __init__(self, run: RunRow, order: Order) -> None:
        self.run, self.order = run, order
        self.workflow = compiled(run.blueprint_id)
        self.values = Values(run, self.workflow)

    def previewed(self) -> RepairReport:
        if self.order.action == "settle_effect":
            return settle_in_doubt(self.run, self.workflow, self.values, self.order, preview=True)[
                0
            ]
        _, _, report = self._foreseen()
        report.preview = True
        return report

    def done(self) -> RepairReport:
        if self.order.action == "settle_effect":
            report, settled = settle_in_doubt(
                self.run, self.workflow, self.values, self.order, preview=False
            )
        else:
            row, decision, report = self._foreseen()
            settled = self._write(row, decision, report)
        report.state, report.state_version = str(self.run.state), self.run.version
        self._audit(report)
        _follow(settled)
        return report

    def _foreseen(self) -> tuple[StepRow | None, Decision, RepairReport]:
        """What would be done, and what is said of it."""
        self._check_run()
        if self.order.action == _UNDO:
            return None, *decide_undo(self.run, self.workflow, self.values, self.order)
        row, decision = self._decided()
        return row, decision, foresee(self.run, self.workflow, self.order, decision, preview=False)

    def _decided(self) -> tuple[StepRow | None, Decision]:
        """The decision, and the row of the step that it moves by itself (skip of a wait)."""
        wish = self._wish()
        match self.order.action:
            case "retry_step":
                return None, repairing.retry_step(wish, self._failed_step())
            case "resume" if self._goes_on_as_it_stands():
                run = self.run
                return None, planning.resume(self.workflow, run.snapshot, reason=self.order.reason)
            case "resume":
                return None, repairing.resume_from(wish, self._checkpoint())
            case _:
                position = self.order.position(self.workflow)
                row = rows.read_item(self.run.id, self.order.step, "")
                return row, repairing.skip_step(wish, position)

    def _goes_on_as_it_stands(self) -> bool:
        """A paused run may be resumed without naming a checkpoint."""
        named = self.order.step or self.order.details.get("from_sequence") is not None
        return self.run.snapshot.paused and not named

    def _wish(self) -> Wish:
        chose = repairing.routers(self.workflow, self.run.snapshot)
        self.values.load(chose)
        routes = {p: tuple(self.values.output(p)["routes"]) for p in chose}
        stored = repairing.stored_state(repair_rows.step_states(self.run.id), routes)
        return Wish(
            workflow=self.workflow,
            snapshot=self.run.snapshot,
            stored=stored,
            conditions=self.values,
        )

    # -- what forbids it -----------------------------------------------------------------------

    def _check_run(self) -> None:
        run, action = self.run, self.order.action
        if action not in _STATES:
            raise refused("action", f"write one of {', '.join(ACTIONS)}")
        if run.state not in _STATES[action] or (run.snapshot.verdict and not run.ended):
            allowed = " or ".join(sorted(_STATES[action]))
            raise StateConflict(
                f"the run is {run.state}; {action} needs a run that is {allowed}", state=run.state
            )
        if run.ended and action != _UNDO:
            self._check_ended()

    def _check_ended(self) -> None:
        run = self.run
        if run.parent_id is not None:
            raise StateConflict(
                f"the run has told its parent {run.parent_id} how it ended: repair that run's step",
                state=run.state,
                code="child_run",
            )
        if repair_rows.time_is_over(run.id):
            raise StateConflict(
                "the time allowed for the whole run is over, and a repair gives none: start a new"
                " run",
                state=run.state,
                code="time_is_over",
            )

    def _failed_step(self) -> int:
        position = self.order.position(self.workflow)
        if self.order.scope:
            row = rows.read_item(self.run.id, self.order.step, self.order.scope)
            if row is None:
                raise NotFound(f"step {self.order.step} has no item {self.order.scope}")
            if row.state not in (StepState.FAILED, StepState.TIMED_OUT):
                raise StateConflict(
                    f"item {row.key}{row.scope} is {row.state}: only one that failed can be"
                    " retried",
                    state=row.state,
                    code="not_failed",
                )
        return position

    def _checkpoint(self) -> set[int]:
        sequence = self.order.details.get("from_sequence")
        if (sequence is None) == (not self.order.step):
            raise refused("step", "name either step or from_sequence, the checkpoint to go on from")
        if sequence is None:
            return {self.order.position(self.workflow)}
        keys = repair_rows.steps_after(self.run.id, sequence) & set(self.workflow.by_key)
        found = {self.workflow.by_key[key] for key in keys}
        if not found:
            raise refused("from_sequence", "no step ended after that line of the history")
        return found

    # -- writing -------------------------------------------------------------------------------

    def _write(self, row: StepRow | None, decision: Decision, report: RepairReport) -> Settled:
        run, order = self.run, self.order
        if run.ended and order.action == _UNDO:
            repair_rows.undo_run(run.id, run.version)
        elif run.ended:
            repair_rows.reopen_run(run.id, run.version)
        decision.events.insert(0, order.event(self.workflow, reruns=report.reruns))
        change = Change(run=run, workflow=self.workflow, decision=decision, actor=order.actor)
        if decision.subject is not None and row is not None:
            change.subject = {
                "id": str(row.id),
                "from": row.state,
                "fence": row.fence,
                "to": str(decision.subject.to),
                "cost": 0,
                "bump": True,
            }
        settled = Settled(run=run, workflow=self.workflow)
        apply_change(change, self.values, settled)
        if row is not None and change.subject is not None:
            _end_wait(row, run.id, settled)
        close_loops(change, self.values, settled)
        return settled

    def _audit(self, report: RepairReport) -> None:
        order = self.order
        repair_rows.store_repair(
            {
                "run_id": self.run.id,
                "token": order.token,
                "fingerprint": order.fingerprint,
                "action": order.action,
                "step": report.step,
                "scope": report.scope,
                "reason": order.reason,
                "actor": order.actor,
                "role": order.role,
                "expected_version": order.expected_version,
                "result": report.stored(),
            }
        )


def _end_wait(row: StepRow, run_id: UUID, settled: Settled) -> None:
    """A wait that is skipped concerns others: its timer goes, whoever was asked is told."""
    timer_rows.drop_timers([row.id])
    named = {"step": row.key, "scope": row.scope, "attempt": row.attempt}
    if row.waiting_for == "person":
        payload = {**named, "reason": "cancelled"}
        settled.posted.append(outbox_rows.post("gate.closed", run_id, payload))
    elif row.waiting_for == "child":
        child = {"step_id": str(row.id)}
        settled.posted.append(outbox_rows.post("child.cancel", run_id, child))


def _follow(settled: Settled) -> None:
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    if posted:
        transaction.on_commit(handle_posted)
