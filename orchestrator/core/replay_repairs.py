"""What an operator did, decided anew."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core import planning, repairing, undoing
from orchestrator.core.reopening import Stored
from orchestrator.core.repairing import Wish
from orchestrator.core.replay_acts import settle_behind
from orchestrator.core.replay_facts import diverge
from orchestrator.core.replay_log import Recorded
from orchestrator.core.replay_machine import Replay


def _wish(replay: Replay) -> Wish:
    chose = repairing.routers(replay.workflow, replay.snapshot)
    routes = {position: replay.routes[position] for position in chose}
    return Wish(
        workflow=replay.workflow,
        snapshot=replay.snapshot,
        stored=Stored(rows=replay.rows.states(), routes=routes),
        conditions=replay.conditions,
    )


def _retry_step(replay: Replay, head: Recorded) -> None:
    decision = repairing.retry_step(_wish(replay), replay.ref(head).position)
    replay.reopen()
    replay.follow(decision, before=1)


def _resume(replay: Replay, head: Recorded) -> None:
    sequence = head.payload.get("from_sequence")
    if not head.step and sequence is None:
        resumed = replay.log.peek(1)
        reason = resumed.payload["reason"] if resumed is not None else ""
        replay.follow(planning.resume(replay.workflow, replay.snapshot, reason=reason), before=1)
        return
    by_key = replay.workflow.by_key
    positions = {
        by_key[key] for key, seq in replay.ended_at.items() if sequence and seq > sequence
    } or {replay.ref(head).position}
    decision = repairing.resume_from(_wish(replay), positions)
    replay.reopen()
    replay.follow(decision, before=1)


def _skip_step(replay: Replay, head: Recorded) -> None:
    decision = repairing.skip_step(_wish(replay), replay.ref(head).position)
    replay.reopen()
    replay.follow(decision, before=1)


def _note(replay: Replay, _: Recorded) -> None:
    """A person settled by hand what the run could not."""
    replay.note()


def _compensate_step(replay: Replay, head: Recorded) -> None:
    """A step is undone; what the run's end wrote stays."""
    decision = undoing.compensate_step(
        replay.workflow,
        replay.snapshot,
        replay.conditions,
        replay.ref(head).position,
        state=replay.state,
        with_dependents=bool(head.payload.get("with_dependents")),
    )
    replay.follow(decision, before=1)


def _undo_all(replay: Replay, _: Recorded) -> None:
    """The parent of the run has failed."""
    workflow, snapshot = replay.workflow, replay.snapshot
    replay.follow(undoing.undo_all(workflow, snapshot, replay.conditions, state=replay.state))


def _settle_effect(replay: Replay, head: Recorded) -> None:
    """A person found out about an effect in doubt; that of a step which is over is only noted."""
    if not head.step:
        replay.note()
    elif head.payload.get("nested"):  # the body looks again, and finds what is known by now
        _look_again(replay, head, before=1)
    elif head.payload["outcome"] == "applied":
        settle_behind(replay, 1)
    else:
        _send_back(replay, head)


def _send_back(replay: Replay, head: Recorded) -> None:
    effect = replay.log.peek(1)
    if effect is None or effect.type != "effect.not_applied":
        diverge(effect or head, "effect.not_applied", effect)
    _look_again(replay, head, before=2)


def _look_again(replay: Replay, head: Recorded, *, before: int) -> None:
    ref = replay.ref(head)
    row = replay.row(head, ref)
    replay.follow(repairing.send_back(_wish(replay), ref), before=before)
    row.n_retries = row.n_lost = 0


REPAIRS: dict[str, Callable[[Replay, Recorded], None]] = {
    "repair.retry_step": _retry_step,
    "repair.resume": _resume,
    "repair.skip_step": _skip_step,
    "repair.settle_effect": _settle_effect,
    "repair.compensate_step": _compensate_step,
    "repair.settle_by_hand": _note,
    "compensation.requested": _undo_all,
}
