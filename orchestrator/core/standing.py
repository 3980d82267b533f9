"""Where a run stands after a fact: at work, waiting, being undone, or over.

A run with a verdict lets its bodies finish, has what is in doubt settled, and is then undone.
"""

from __future__ import annotations

from orchestrator.core import saga
from orchestrator.core.decision import Ref
from orchestrator.core.propagation import Turn
from orchestrator.core.snapshot import ENDED, QUEUED, WAIT_CODES, WAIT_WORDS, Code, Loop, Undo
from orchestrator.core.states import RunState

_ACTIVE = tuple(map(int, (Code.READY, Code.READY | QUEUED, Code.RUNNING, Code.RETRYING)))


def stand(turn: Turn) -> None:
    """Work out the run's state from its steps; ends the run when nothing is left."""
    decision, snapshot = turn.decision, turn.snapshot
    active, waits = _census(turn)
    if snapshot.undo is not None:
        state = _stand_undoing(turn, snapshot.undo)
    elif snapshot.verdict is not None:
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
    undone = verdict is not None and verdict.state != RunState.COMPLETED
    begun = saga.has_begun(turn.workflow, turn.snapshot)
    if undone and not _is_open(turn):
        for position in saga.due(turn.workflow, turn.snapshot):
            _undo(turn, position)
            active, begun = active + 1, True
    if active or waits:
        decision.waiting_for = "" if active else min(waits)[1]
        state = RunState.RUNNING if active else RunState.WAITING
        return RunState.COMPENSATING if begun else state
    return RunState.COMPLETED if verdict is None else RunState(verdict.state)


def _is_open(turn: Turn) -> bool:
    """Whether a step of the document has yet to come to its end: what it did is not known."""
    codes = (turn.snapshot.code(step.position) for step in turn.workflow.forward)
    at_work = any(code not in ENDED and code != Code.COMPENSATING for code in codes)
    return at_work or bool(turn.decision.loops_done)


def _stand_undoing(turn: Turn, undo: Undo) -> RunState:
    """Steps of a run that stands paused, or is over, are undone; then it is as it was before."""
    for position in saga.due(turn.workflow, turn.snapshot):
        _undo(turn, position)
    active, waits = _undo_census(turn)
    if active or waits:
        turn.decision.waiting_for = "" if active else min(waits)[1]
        return RunState.COMPENSATING
    turn.snapshot.undo, turn.decision.came_back = None, undo
    word = saga.verdict(turn.workflow, turn.snapshot)
    turn.emit("compensation.finished", None, state=undo.back, compensation=word)
    return RunState(undo.back)


def _undo(turn: Turn, position: int) -> None:
    """Start the compensation at ``position``: what was done after it has been undone."""
    undone = turn.workflow.steps[position].undoes
    if undone is None:
        return
    turn.assign(position, Code.READY)
    if turn.snapshot.code(undone) == Code.COMPLETED:  # one that had not finished keeps its state
        turn.assign(undone, Code.COMPENSATING)
    turn.decision.undoing.append(undone)
    if position in turn.snapshot.reopened:  # it was tried before, and failed
        turn.snapshot.reopened.remove(position)
        turn.decision.again.append(position)
    else:
        turn.decision.ready.append(Ref(position))
    turn.emit("compensation.started", Ref(undone))
    turn.emit("step.ready", Ref(position))


def _census(turn: Turn) -> tuple[int, set[tuple[int, str]]]:
    """How many steps and items are ready, running or retrying; and what is waited for."""
    codes = turn.snapshot.codes
    active = sum(map(codes.count, _ACTIVE))
    waits = {(code, word) for code, word in WAIT_WORDS.items() if code in codes}
    for loop in turn.snapshot.loops.values():
        active += _count(loop, waits)
    return active + len(turn.decision.loops_done), waits


def _count(loop: Loop, waits: set[tuple[int, str]]) -> int:
    waits.update((int(WAIT_CODES[word]), word) for word, n in loop.waits.items() if n)
    return loop.running + loop.retrying + len(loop.ready) + len(loop.queued)


def _undo_census(turn: Turn) -> tuple[int, set[tuple[int, str]]]:
    """The same of the compensations alone."""
    active, waits = 0, set[tuple[int, str]]()
    for step in turn.workflow.compensations:
        code, loop = turn.snapshot.codes[step.position], turn.snapshot.loops.get(step.position)
        if loop is not None:
            active += _count(loop, waits) + (step.position in turn.decision.loops_done)
        elif code in _ACTIVE:
            active += 1
        elif code in WAIT_WORDS:
            waits.add((code, WAIT_WORDS[code]))
    return active, waits
