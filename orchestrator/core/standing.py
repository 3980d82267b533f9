"""Where a run stands after a fact: at work, waiting, being undone, or over.

A run with a verdict lets its bodies finish, has what is in doubt settled, and is then undone.
"""

from __future__ import annotations

from orchestrator.core import saga
from orchestrator.core.decision import Ref
from orchestrator.core.propagation import Turn
from orchestrator.core.snapshot import QUEUED, WAIT_CODES, WAIT_WORDS, Code
from orchestrator.core.states import RunState

_ACTIVE = tuple(map(int, (Code.READY, Code.READY | QUEUED, Code.RUNNING, Code.RETRYING)))


def stand(turn: Turn) -> None:
    """Work out the run's state from its steps; ends the run when nothing is left."""
    decision, snapshot = turn.decision, turn.snapshot
    active, waits = _census(turn)
    if snapshot.verdict is not None:
        state = _stand_at_the_end(turn, active, waits)
    elif snapshot.paused:
        state = RunState.PAUSED
    elif active:
        state = RunState.RUNNING
    elif waits:
        state, decision.waiting_for = RunState.WAITING, min(waits)[1]
    else:
        state = RunState.COMPLETED
    decision.run_state = state


def _stand_at_the_end(turn: Turn, active: int, waits: set[tuple[int, str]]) -> RunState:
    """The run has a verdict: bodies finish, what is in doubt is settled, then it is undone."""
    verdict, decision = turn.snapshot.verdict, turn.decision
    undoing = saga.has_begun(turn.workflow, turn.snapshot)
    if (active or waits) and not undoing:
        decision.waiting_for = "" if active else min(waits)[1]
        return RunState.RUNNING if active else RunState.WAITING
    if verdict is None or verdict.state == RunState.COMPLETED:
        return RunState.COMPLETED
    for position in saga.due(turn.workflow, turn.snapshot):
        _undo(turn, position)
        active += 1
    if active or waits:
        decision.waiting_for = "" if active else min(waits)[1]
        return RunState.COMPENSATING
    return RunState(verdict.state)


def _undo(turn: Turn, position: int) -> None:
    """Start the compensation at ``position``: what was done after it has been undone."""
    undone = turn.workflow.steps[position].undoes
    if undone is None:
        return
    turn.assign(position, Code.READY)
    turn.assign(undone, Code.COMPENSATING)
    turn.decision.ready.append(Ref(position))
    turn.decision.undoing.append(undone)
    turn.emit("compensation.started", Ref(undone))
    turn.emit("step.ready", Ref(position))


def _census(turn: Turn) -> tuple[int, set[tuple[int, str]]]:
    """How many steps and items are ready, running or retrying; and what is waited for."""
    codes = turn.snapshot.codes
    active = sum(map(codes.count, _ACTIVE))
    waits = {(code, word) for code, word in WAIT_WORDS.items() if code in codes}
    for loop in turn.snapshot.loops.values():
        active += loop.running + loop.retrying + len(loop.ready) + len(loop.queued)
        waits.update((int(WAIT_CODES[word]), word) for word, n in loop.waits.items() if n)
    return active + len(turn.decision.loops_done), waits
