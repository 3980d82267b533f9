"""What the page of a run, and that of one of its steps, shows."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from orchestrator import engine
from orchestrator.admin.readonly import json_block, state_badge
from orchestrator.admin.repair_acts import Offers
from orchestrator.core.durations import format_money
from orchestrator.engine import RunPicture, StepPicture
from orchestrator.models import Attempt, Event, ReplayCheck, Run, Step, Turn

EVENTS_SHOWN = 200
PAYLOAD_SHOWN = 200
TURN_SHOWN = 2000


def run_context(run: Run, offers: Offers | None) -> dict[str, Any]:
    """A run with its steps and the end of its history."""
    picture = engine.picture(run)
    found = Event.objects.filter(run_id=run.id).order_by("-seq")[: EVENTS_SHOWN + 1]
    events = list(found)
    return {
        "title": f"{run.workflow} {run.id}",
        "run": run,
        "picture": picture,
        "badge": state_badge(run.state, picture.label),
        "elapsed": engine.length(picture.elapsed),
        "worked": engine.length(picture.worked),
        "cost": format_money(run.cost_microusd),
        "budget": _budget(picture),
        "steps": [_step_row(step, picture, offers) for step in picture.steps],
        "saga": [_saga_row(line) for line in engine.saga_ledger(run)],
        "events": [event_row(event) for event in events[:EVENTS_SHOWN]],
        "more_events": len(events) > EVENTS_SHOWN,
        "input": json_block(run.input),
        "output": _block(run.output),
        "error": _block(run.error),
        "context_data": _block(run.context),
        "summary": _block(picture.summary),
        "replay": _replay(picture.replay),
        "warnings": json_block(run.warnings) if run.warnings else None,
    }


def _saga_row(line: engine.SagaLine) -> dict[str, Any]:
    return {
        "line": line,
        "badge": state_badge(line.state),
        "at": _clock(line.at, "%Y-%m-%d %H:%M:%S") if line.at else "",
    }


def step_context(run: Run, step: Step, offers: Offers | None) -> dict[str, Any]:
    """A step: what went in, what came out, what failed on the way."""
    blocks = [
        ("Input", step.input),
        ("Item", step.item if step.index is not None else None),
        ("Output", step.output),
        ("Error", step.error),
        ("Output of the last round", step.previous),
    ]
    return {
        "title": f"Step {step} of {run.workflow}",
        "run": run,
        "step": step,
        "badge": state_badge(step.state),
        "sentence": engine.item_pictures(run, [step])[0].sentence,
        "blocks": [(name, json_block(value)) for name, value in blocks if value is not None],
        "repairs": [*offers.of_step(step), *offers.of_checkpoint(step)] if offers else (),
        "attempts": Attempt.objects.filter(step=step)[:EVENTS_SHOWN],
        "turns": [_turn_row(turn) for turn in step.turns.all()[:EVENTS_SHOWN]],
    }


def _turn_row(turn: Turn) -> dict[str, Any]:
    """One turn of a conversation with a model: what was said, asked for, answered, refused."""
    content = turn.content
    if turn.kind == "tool":
        verdict = "failed" if content.get("failed") else "used"
        if content.get("refused"):
            verdict = f"refused: {content['refused']}"
        return {
            "turn": turn,
            "verdict": verdict,
            "asked": _cut(content.get("arguments")),
            "said": _cut(content.get("answer")),
        }
    cost = "?" if turn.cost_microusd is None else format_money(turn.cost_microusd)
    asked = [f"{use['name']} {use['arguments']}" for use in content.get("uses", ())]
    return {
        "turn": turn,
        "verdict": "answered",
        "asked": _cut("\n".join(asked)),
        "said": _cut(content.get("text")),
        "cost": cost,
        "context": json_block(content["context"]) if content.get("context") else None,
        "before": content.get("before"),
    }


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= TURN_SHOWN else text[: TURN_SHOWN - 1] + "…"


def event_row(event: Event) -> dict[str, Any]:
    """A line of the history, its payload as names and texts."""
    pairs = [(name, _short(value)) for name, value in event.payload.items()]
    return {"event": event, "at": _clock(event.at, "%Y-%m-%d %H:%M:%S"), "pairs": pairs}


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PAYLOAD_SHOWN else text[: PAYLOAD_SHOWN - 1] + "…"


def _clock(at: datetime, pattern: str = "%H:%M:%S") -> str:
    """To the millisecond."""
    return f"{at.strftime(pattern)}.{at.microsecond // 1000:03d}"


def _block(value: Any) -> Any:
    return None if value is None else json_block(value)


def _budget(picture: RunPicture) -> str:
    budget = picture.budget
    if budget is None or budget.cost_microusd is None:
        return ""
    return format_money(budget.cost_microusd)


def _replay(check: ReplayCheck | None) -> dict[str, Any] | None:
    """When it was replayed last, and what came of it."""
    if check is None:
        return None
    word = {True: "identical", False: "differs", None: "not replayed"}[check.identical]
    colour = {True: "completed", False: "failed", None: "waiting"}[check.identical]
    return {"check": check, "badge": state_badge(colour, word)}


def _step_row(step: StepPicture, picture: RunPicture, offers: Offers | None) -> dict[str, Any]:
    took = ""
    if step.started_at is not None:
        took = engine.length((step.finished_at or picture.now) - step.started_at)
    cost = "?" if step.cost_microusd is None else ""
    if step.cost_microusd:
        cost = format_money(step.cost_microusd)
    return {
        "step": step,
        "badge": state_badge(step.state, step.label),
        "started": _clock(step.started_at) if step.started_at else "",
        "took": took,
        "cost": cost,
        "offers": offers.of_step(step) if offers is not None else (),
    }
