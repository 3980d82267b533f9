"""The words for states and the two tables of legal moves; nothing else decides legality."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands (SPEC 4.1)."""

    PENDING = "pending"  # stored, nothing claimed yet
    RUNNING = "running"  # a step is ready, running or retrying
    WAITING = "waiting"  # only waits are left; ``waiting_for`` says for what
    PAUSED = "paused"  # held by a person or a policy; nothing new starts
    COMPENSATING = "compensating"  # effects are being undone
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class StepState(StrEnum):
    """Where a step stands (SPEC 4.1)."""

    BLOCKED = "blocked"  # its needs are not settled
    READY = "ready"  # may run; waits for a worker or a free place
    RUNNING = "running"  # a worker holds its lease, or its items are at work
    RETRYING = "retrying"  # failed; a timer will make it ready again
    WAITING = "waiting"  # parked: a person, signal, timer or child
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"


_R = RunState
_S = StepState

RUN_TERMINAL = frozenset({_R.COMPLETED, _R.FAILED, _R.CANCELLED, _R.TIMED_OUT})
RUN_WORKING = frozenset({_R.PENDING, _R.RUNNING, _R.COMPENSATING})
"""States whose duration counts as working time (FORMAT section 4, Waiting and working)."""

STEP_TERMINAL = frozenset(
    {_S.COMPLETED, _S.FAILED, _S.SKIPPED, _S.TIMED_OUT, _S.CANCELLED, _S.COMPENSATED}
)

_ENDS = frozenset({_R.COMPLETED, _R.FAILED, _R.CANCELLED, _R.TIMED_OUT})

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    _R.PENDING: _ENDS | {_R.RUNNING, _R.WAITING, _R.PAUSED, _R.COMPENSATING},
    _R.RUNNING: _ENDS | {_R.WAITING, _R.PAUSED, _R.COMPENSATING},
    _R.WAITING: _ENDS | {_R.RUNNING, _R.PAUSED, _R.COMPENSATING},
    _R.PAUSED: _ENDS | {_R.PENDING, _R.RUNNING, _R.WAITING, _R.COMPENSATING},
    _R.COMPENSATING: _ENDS | {_R.PAUSED},
    _R.COMPLETED: frozenset(),
    _R.FAILED: frozenset(),
    _R.CANCELLED: frozenset(),
    _R.TIMED_OUT: frozenset(),
}

_GIVES_UP = frozenset({_S.FAILED, _S.TIMED_OUT, _S.SKIPPED, _S.CANCELLED})

STEP_MOVES: dict[StepState, frozenset[StepState]] = {
    # blocked -> running: made ready and claimed in one transaction by the worker at hand
    _S.BLOCKED: frozenset({_S.READY, _S.RUNNING, _S.SKIPPED, _S.FAILED, _S.CANCELLED}),
    # ready -> waiting: it stands before a gate that is shut or full
    _S.READY: frozenset({_S.RUNNING, _S.WAITING, _S.CANCELLED}),
    _S.RUNNING: _GIVES_UP | {_S.COMPLETED, _S.RETRYING, _S.WAITING, _S.READY},
    _S.RETRYING: frozenset({_S.READY, _S.RUNNING, _S.CANCELLED}),
    _S.WAITING: _GIVES_UP | {_S.COMPLETED, _S.RETRYING, _S.READY, _S.RUNNING, _S.WAITING},
    _S.COMPLETED: frozenset({_S.COMPENSATING}),
    # a failed step that paused its run is made ready again when the run is resumed; an optional one
    # counts as skipped once its fallback has failed too
    _S.FAILED: frozenset({_S.READY, _S.RUNNING, _S.SKIPPED}),
    _S.TIMED_OUT: frozenset({_S.READY, _S.RUNNING, _S.SKIPPED}),
    _S.SKIPPED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.COMPENSATING: frozenset({_S.COMPENSATED, _S.COMPLETED}),  # completed: it could not be undone
    _S.COMPENSATED: frozenset(),
}

# What a repair may do beside that, and nothing else may: FORMAT section 4, Repair. An operator
# names the run, the step and the reason; the engine proves the rest.
_REOPENED = frozenset({_R.RUNNING, _R.WAITING, _R.COMPLETED, _R.FAILED, _R.COMPENSATING})
RUN_REPAIRS: dict[RunState, frozenset[RunState]] = {
    _R.FAILED: _REOPENED,
    _R.CANCELLED: _REOPENED,
}
# An ended run may be undone after its end: by a repair of one step, or since its parent failed. It
# comes back to the very end that it had (``Undo.back``), by RUN_MOVES of COMPENSATING.
RUN_UNDOES: dict[RunState, frozenset[RunState]] = {
    end: frozenset({_R.COMPENSATING}) for end in RUN_TERMINAL
}
_BACK = frozenset({_S.BLOCKED, _S.READY})
STEP_REPAIRS: dict[StepState, frozenset[StepState]] = {
    _S.COMPLETED: _BACK,
    _S.SKIPPED: _BACK,
    _S.CANCELLED: _BACK | {_S.RUNNING},
    _S.FAILED: _BACK | {_S.RUNNING, _S.SKIPPED},  # running: a for_each with items to do again
    _S.TIMED_OUT: _BACK | {_S.RUNNING, _S.SKIPPED},
    _S.RETRYING: frozenset({_S.SKIPPED}),
}


def may_move_run(old: RunState, new: RunState) -> bool:
    """Whether a run may go from ``old`` to ``new``; staying is always allowed, except at an end."""
    return new in RUN_MOVES[old] or (old == new and old not in RUN_TERMINAL)


def may_move_step(old: StepState, new: StepState) -> bool:
    """Whether a step may go from ``old`` to ``new``."""
    return new in STEP_MOVES[old]


def may_repair_run(old: RunState, new: RunState) -> bool:
    """Whether a repair may take a run from ``old`` to ``new``."""
    return may_move_run(old, new) or new in RUN_REPAIRS.get(old, frozenset())


def may_undo_run(old: RunState, new: RunState) -> bool:
    """Whether undoing finished steps may take a run that is over from ``old`` to ``new``."""
    return new in RUN_UNDOES.get(old, frozenset())


def may_repair_step(old: StepState, new: StepState) -> bool:
    """Whether a repair may take a step, or an item, from ``old`` to ``new``."""
    return may_move_step(old, new) or new in STEP_REPAIRS.get(old, frozenset())
