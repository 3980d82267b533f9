"""Finding what was lost: leases of dead workers, time limits, messages that never arrived.

Level-triggered and bounded; two sweeps at once do no harm (the run's lock, skipped when taken).
"""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

from orchestrator.conf import engine_settings
from orchestrator.core import planning
from orchestrator.core.decision import Ref
from orchestrator.core.errors import CLAIMED_WITH, ErrorClass, StepError
from orchestrator.core.outcomes import Failed
from orchestrator.core.states import RunState
from orchestrator.crash import Unit
from orchestrator.engine import breakers, crowding, outbox, ports
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.effects import after_loss
from orchestrator.engine.settle import apply_change, carry_out, decide
from orchestrator.engine.settled import Settled
from orchestrator.engine.sweeping import each
from orchestrator.engine.values import Values
from orchestrator.engine.work import company_of_claim
from orchestrator.models import ready_pages, rows, sweeps
from orchestrator.models.rows import StepRow

_walk = ready_pages.Walk()


def expire_leases(limit: int = 100) -> int:
    """End the attempts whose lease is over, as timed out or as lost with their worker."""
    return each(sweeps.expired_leases(limit), _expire)


def _expire(found: tuple[UUID, UUID, int]) -> bool:
    run_id, step_id, fence = found
    with Unit("lost_lease"):
        run = rows.lock_run(run_id, skip_locked=True)
        if run is None or run.ended or not sweeps.lease_is_over(step_id, fence):
            return False
        row = rows.read_step(step_id)
        if row is None:
            return False
        workflow = compiled(run.blueprint_id)
        hung = sweeps.timed_out(step_id)
        limit_s = workflow.steps[row.position].timeout_s
        error = _hung(row, limit_s) if hung else _lost(row)
        lost = error.names_the_lost
        values = Values(run, workflow)
        answered = after_loss(workflow.steps[row.position], row.id, Failed(error=error))
        outcome = answered.outcome
        change = decide(run, workflow, values, row, outcome, lost=lost, effect=answered.effect)
        if change.subject is not None:
            change.subject["bump"] = True  # whoever held it is fenced off for good
        settled = carry_out(change, values, row, outcome, lost=lost)
    settled.send()
    outbox.handle(settled.posted)
    if hung:
        breakers.note_timeout(workflow.steps[row.position], row, tenant=run.tenant)
    return True


def _hung(row: StepRow, limit_s: float) -> StepError:
    words = f"attempt {row.attempt} took longer than {limit_s:g} s"
    return StepError(error_class=ErrorClass.TIMEOUT, message=words)


def _lost(row: StepRow) -> StepError:
    """Of several that were claimed together nobody knows which body had begun: each is tried again,
    by itself, and that tells."""
    words = f"worker {row.worker} was lost during attempt {row.attempt}"
    others = company_of_claim(row.worker)
    details = {CLAIMED_WITH: others} if others else None
    return StepError(error_class=ErrorClass.WORKER_LOST, message=words, details=details)


def redispatch_stale(limit: int = 200) -> int:
    """Send again the wake-ups of READY work whose message is taken for lost; how many runs."""
    dispatcher = ports.dispatcher()
    waiting = ready_pages.queues_with_ready()
    if not waiting:
        return 0
    depths = {queue: dispatcher.depth(queue) for queue in waiting}
    crowded = crowding.note_depths(depths)
    after_s = engine_settings().stale_after.total_seconds()
    found = [
        one
        for queue in waiting
        if queue not in crowded
        for one in _walk.stale(queue, after_s=after_s, is_empty=depths[queue] == 0)
    ]
    stale = sorted(ready_pages.in_turns(found, limit), key=lambda one: one.run_id)
    groups = [
        (run_id, [Ref(one.position, one.index) for one in group])
        for run_id, group in groupby(stale, key=lambda one: one.run_id)
    ]
    return each(groups, _redispatch)


def _redispatch(found: tuple[UUID, list[Ref]]) -> bool:
    run_id, stale = found
    with Unit("redispatch"):
        run = rows.lock_run(run_id, skip_locked=True)
        if run is None or run.ended:
            return False
        workflow = compiled(run.blueprint_id)
        decision = planning.redispatch(workflow, run.snapshot, stale)
        if not decision.dispatch:
            return False
        if run.state is RunState.PENDING:
            decision.run_state = RunState.PENDING  # a message sent is no step begun
        settled = Settled(run=run, workflow=workflow)
        change = Change(run=run, workflow=workflow, decision=decision)
        apply_change(change, Values(run, workflow), settled)
    settled.send()
    return True
