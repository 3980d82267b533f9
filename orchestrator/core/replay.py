"""Replay: a run's recorded history is decided anew, by the functions that live work uses.

The machine is driven by data, so a replay executes nothing: it reads each recorded fact (an
attempt's answer, a timer, a signal, an operator's act), asks ``core.planning`` and its neighbours
what follows from it, and compares that with what was recorded. What cannot be worked out again is
recorded and taken from there: answers and errors, what conditions said, jitter, people's words,
instants. Which READY step takes a free place, and by which message, is the carriers' affair: here a
start must be allowed, no more. ADR 0021 says what that proves, and what it does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.errors import InvariantBroken, StateConflict
from orchestrator.core.replay_acts import ACTS, settle
from orchestrator.core.replay_facts import SETTLES, diverge
from orchestrator.core.replay_log import Recorded
from orchestrator.core.replay_machine import Replay, Wrap
from orchestrator.core.replay_repairs import REPAIRS
from orchestrator.core.states import RUN_TERMINAL

__all__ = ["Replay", "Wrap", "replay"]

_ACTS = {**ACTS, **REPAIRS, **dict.fromkeys(SETTLES, settle)}
_DAMAGE = (KeyError, IndexError, ValueError, TypeError, AttributeError)


def replay(
    workflow: CompiledWorkflow,
    lines: Iterable[Recorded],
    conditions: Wrap | None = None,
) -> Replay:
    """Decide a whole history anew; where the run must stand after it.

    Raises Diverged at the first line that does not follow from those before it.
    """
    run = Replay(workflow, lines, conditions)
    head = run.log.peek()
    if head is None or head.type != "run.started":
        diverge(head, "run.started", head)
    while head is not None:
        _act(run, head)
        head = run.log.peek()
    return run


def _act(run: Replay, head: Recorded) -> None:
    act = _ACTS.get(head.type)
    if act is None:
        diverge(head, f"a line that a run which is {run.state} may go on with", head)
    if run.state in RUN_TERMINAL and head.type not in REPAIRS:
        diverge(head, f"nothing, for the run is {run.state}", head)
    try:
        act(run, head)
    except (StateConflict, InvariantBroken) as refusal:
        diverge(head, f"no such act: {refusal}", head)
    except _DAMAGE as damage:
        diverge(head, f"a line that can be read ({type(damage).__name__}: {damage})", head)
