"""Why a run stands where it stands, in one sentence for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from orchestrator.core.states import STEP_TERMINAL, RunState, StepState
from orchestrator.core.undo_steps import UNDO
from orchestrator.engine.pictures import StepPicture
from orchestrator.models import Event, Run

# What needs attention first is told first.
_URGENCY = ("person", "review", "budget", "service", "signal", "child", "timer")
_NAMED = 3


def explain(run: Run, steps: Sequence[StepPicture], *, event: Event | None, now: datetime) -> str:
    """One sentence: what runs, or what is waited for, of whom and until when, or how it ended.

    ``event`` is the history's line that ended or paused the run, where there is one.
    """
    state = RunState(run.state)
    ended = _ENDED.get(state)
    if ended is not None:
        return ended(run, event)
    if state is RunState.PAUSED:
        return _paused(event, steps)
    if state is RunState.COMPENSATING:
        return _undoes(steps)
    return _waits(steps, now) if state is RunState.WAITING else _works(steps, now)


# -- ended and paused ------------------------------------------------------------------------------


def _completed(run: Run, _event: Event | None) -> str:
    took = length(run.finished_at - run.created_at) if run.finished_at else "a while"
    odd = run.outcome not in ("", "succeeded")
    outcome = f" with the outcome {run.outcome}" if odd else ""
    warned = len(run.warnings)
    also = f" {warned} step{_s(warned)} failed on the way: see warnings." if warned else ""
    return f"Completed{outcome} after {took}.{also}"


def _failed(run: Run, event: Event | None) -> str:
    step = event.payload.get("step") if event else None
    message = str((run.error or {}).get("message", "no reason was recorded")).rstrip(".")
    return f"Failed at step {step}: {message}." if step else f"Failed: {message}."


def _cancelled(run: Run, event: Event | None) -> str:
    who = f" by {event.actor}" if event and event.actor else ""
    reason = str((run.error or {}).get("message", "")).rstrip(".")
    return f"Cancelled{who}." if reason in ("", "cancelled") else f"Cancelled{who}: {reason}."


def _timed_out(_run: Run, _event: Event | None) -> str:
    return "The time allowed for the whole run was over before it had finished."


_ENDED: Mapping[RunState, Callable[[Run, Event | None], str]] = {
    RunState.COMPLETED: _completed,
    RunState.FAILED: _failed,
    RunState.CANCELLED: _cancelled,
    RunState.TIMED_OUT: _timed_out,
}


def _paused(event: Event | None, steps: Sequence[StepPicture]) -> str:
    running = [step for step in steps if step.state is StepState.RUNNING]
    still = f" {_names(running)} still {_run(running)} to the end." if running else ""
    undone = [step for step in steps if step.state is StepState.COMPENSATED]
    if undone and any(step.state not in STEP_TERMINAL for step in steps if step not in undone):
        is_undone = f"{_names(undone)} {'was' if len(undone) == 1 else 'were'} undone"
        return f"Paused{_by(event)}. {is_undone}, so it cannot go on: cancel it.{still}"
    return f"Paused{_by(event)}. Nothing new starts until somebody resumes it.{still}"


def _by(event: Event | None) -> str:
    if event is None:
        return ""
    who = f" by {event.actor}" if event.actor else ""
    reason = str(event.payload.get("reason") or "").rstrip(".")
    return f"{who}: {reason}" if reason else who


def _undoes(steps: Sequence[StepPicture]) -> str:
    undone = [s for s in steps if s.state is StepState.COMPENSATING] or [
        s for s in steps if s.state in STEP_TERMINAL and s.sentence
    ]
    told = f" Step {undone[0].name}: {undone[0].sentence}" if undone and undone[0].sentence else ""
    return f"What was done is being undone, last effect first.{told}"


# -- under way -------------------------------------------------------------------------------------


def _waits(steps: Sequence[StepPicture], now: datetime) -> str:
    waiting = [step for step in steps if step.state is StepState.WAITING]
    if not waiting:
        return "Waits; the next step is being chosen."
    waiting.sort(key=_urgency)
    first, more = waiting[0], len(waiting) - 1
    also = f" {more} more step{_s(more)} wait{'s' if more == 1 else ''}." if more else ""
    return f"Step {first.name}: {_waiting(first, now)}{also}"


def _waiting(step: StepPicture, now: datetime) -> str:
    if step.waiting_for == "child" and step.sentence:  # which tells how the child is, too
        return step.sentence[0].lower() + step.sentence[1:]
    return f"{wait_reason(step).rstrip('.')}{until(step, now)}."


def _urgency(step: StepPicture) -> tuple[int, int]:
    kind = step.waiting_for
    place = _URGENCY.index(kind) if kind in _URGENCY else len(_URGENCY)
    return place, step.position


def wait_reason(step: StepPicture) -> str:
    """What the step waits for, as the middle of a sentence."""
    if step.waiting_for == "child" and step.key.startswith(UNDO):
        return f"waits until {step.why}"
    if step.waiting_for == "child":
        return f"waits for its sub-workflow, run {step.child}" if step.child else "starts a run"
    if step.why:
        return step.why[0].lower() + step.why[1:]
    if step.waiting_for == "signal":
        return f"waits for the signal {step.waiting_key}"
    return f"waits for a {step.waiting_for or 'wake-up'}"


def _works(steps: Sequence[StepPicture], now: datetime) -> str:
    running = [s for s in steps if s.state is StepState.RUNNING]
    if running:
        return f"{_names(running)} {_are(running)} running{_attempts(running)}."
    retrying = [s for s in steps if s.state is StepState.RETRYING]
    if retrying:
        return _retry(min(retrying, key=lambda s: s.until or now), now)
    ready = [s for s in steps if s.state is StepState.READY]
    if ready:
        wait = "waits" if len(ready) == 1 else "wait"
        return (
            f"{_names(ready)} {_are(ready)} ready and {wait} for {_who(ready)}{_since(ready, now)}."
        )
    waiting = any(s.state is StepState.WAITING for s in steps)
    return _waits(steps, now) if waiting else "The next step is being chosen."


def _who(ready: Sequence[StepPicture]) -> str:
    """Workers on the queues of what was sent for; without any, the run has no place to give."""
    sent = [step for step in ready if step.dispatched_at is not None]
    queues = list(dict.fromkeys(step.queue for step in sent))
    match queues:
        case []:
            return "a message or a free place"
        case [one]:
            return f"a worker on queue {one}"
        case _:
            return f"workers on queues {', '.join(queues[:_NAMED])}"


def _since(ready: Sequence[StepPicture], now: datetime) -> str:
    first = min((step.ready_at for step in ready if step.ready_at is not None), default=None)
    return "" if first is None else f", for {length(now - first)}"


def _retry(step: StepPicture, now: datetime) -> str:
    message = str((step.error or {}).get("message", "an error")).rstrip(".")
    return f"Step {step.name} failed ({message}) and is tried again{at(step.until, now)}."


def _names(steps: Sequence[StepPicture]) -> str:
    # The parent of a loop is shown by its items.
    items = {s.key for s in steps if s.scope}
    named = [s.name for s in steps if s.scope or s.key not in items]
    more = len(named) - _NAMED
    text = ", ".join(named[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"Step{_s(len(named))} {text}"


def _are(steps: Sequence[StepPicture]) -> str:
    return "is" if len(steps) == 1 else "are"


def _run(steps: Sequence[StepPicture]) -> str:
    return "runs" if len(steps) == 1 else "run"


def _attempts(steps: Sequence[StepPicture]) -> str:
    return f" (attempt {steps[0].attempt})" if len(steps) == 1 and steps[0].attempt > 1 else ""


def until(step: StepPicture, now: datetime) -> str:
    """``, until <instant> (in 5 min)``; empty when the wait has no end of its own."""
    if step.until is None:
        return ""
    return f", until {moment(step.until)} ({_distance(step.until - now)})"


def at(instant: datetime | None, now: datetime) -> str:
    """`` at <instant> (in 5 min)``; empty when there is none."""
    return "" if instant is None else f" at {moment(instant)} ({_distance(instant - now)})"


def moment(at: datetime) -> str:
    """An instant to the second, in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _distance(span: timedelta) -> str:
    return f"in {length(span)}" if span > timedelta() else "due now"


def length(span: timedelta) -> str:
    """A duration in at most two units: ``3 d 4 h``, ``12 min``, ``1.4 s``, ``23 ms``."""
    seconds = max(0.0, span.total_seconds())
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    shown = [f"{n} {unit}" for n, unit in parts if n][:2]
    return " ".join(shown) or "1 min"


def _s(n: int) -> str:
    return "" if n == 1 else "s"
