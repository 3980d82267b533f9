"""Which repairs the console knows, and where it offers them; the engine has the last word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

from orchestrator import engine
from orchestrator.core.effects import EffectStatus
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState
from orchestrator.engine import RepairReport, StepPicture
from orchestrator.models import Effect, Run, Step

_HALTED = frozenset({RunState.FAILED, RunState.PAUSED})
_FAILED = frozenset({StepState.FAILED, StepState.TIMED_OUT})
_ACTIVE = frozenset({RunState.PENDING, RunState.RUNNING, RunState.WAITING})
_AT_WORK = frozenset({StepState.RUNNING, StepState.READY, StepState.RETRYING})
_IN_DOUBT = (EffectStatus.INTENDED, EffectStatus.IN_DOUBT)
_EFFECTS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One repair. ``needs``: the fields that have to be known before it can be previewed; one of
    them is enough. ``done`` is what the message says afterwards, with the name."""

    action: str
    label: str
    done: str
    effect: str
    needs: tuple[str, ...] = ("step",)

    @property
    def address_word(self) -> str:
        """Its word in the address."""
        return self.action.replace("_", "-")


ACTS = {
    act.address_word: act
    for act in (
        Act(
            action="retry_step",
            label="Retry",
            done="Step {} is tried again",
            effect=(
                "The failed step runs again with fresh retries, and what the run's end cut off goes"
                " on. Effects that happened are found by their receipts and not repeated."
            ),
        ),
        Act(
            action="resume",
            label="Go on from",
            done="The run goes on from {}",
            effect=(
                "That step and everything behind it run again. Effects that happened are found by"
                " their receipts and not repeated."
            ),
            needs=("step", "from_sequence"),
        ),
        Act(
            action="compensate_step",
            label="Undo",
            done="Step {} is being undone",
            effect=(
                "What the step did outside is undone by its compensation. The run stands as"
                " compensating meanwhile, and comes back to what it is now."
            ),
        ),
        Act(
            action="skip_step",
            label="Skip",
            done="Step {} is skipped",
            effect="The optional step ends as skipped, and the run goes on without it.",
        ),
        Act(
            action="settle_effect",
            label="Settle",
            done="Effect {} is settled",
            effect=(
                "You have found out at the provider whether it happened. Applied: the step"
                " completes with the receipt. Not applied: it is called again."
            ),
            needs=("outcome",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A button: what it says, where it leads, and its CSS word."""

    label: str
    address: str
    word: str


def address_of(run_id: UUID, act: Act, **target: str) -> str:
    """The page of that repair, with what is known of it filled in."""
    given = {name: value for name, value in target.items() if value}
    page = reverse("admin:orchestrator_run_repair", args=[run_id, act.address_word])
    return f"{page}?{urlencode(given)}" if given else page


class Offers:
    """The repairs that make sense for one run as it stands, by step."""

    def __init__(self, run: Run) -> None:
        self._run, self._state = run, RunState(run.state)
        workflow = engine.compiled(run.blueprint_id)
        self._plans = {step.key: step for step in workflow.forward}
        self._undoable = {c.key.removeprefix(engine.UNDO) for c in workflow.compensations}
        self._in_doubt = _effects_in_doubt(run)
        told = self._state in RUN_TERMINAL and run.parent_id is not None
        self._halted = self._state in _HALTED and not told

    def of_run(self) -> list[Offer]:
        """What is offered beside pause, resume and cancel."""
        cancelled = self._state is RunState.CANCELLED and self._run.parent_id is None
        if not (self._halted or cancelled):
            return []
        return [self._offer("resume", "Go on from …")]

    def of_step(self, step: StepPicture | Step) -> list[Offer]:
        """What is offered for one step or item."""
        found = []
        if self._may_retry(step):
            found.append(self._offer("retry-step", "Retry …", step=step.key, scope=step.scope))
        if self._may_skip(step):
            found.append(self._offer("skip-step", "Skip …", step=step.key))
        if self._may_undo(step):
            undone = step.key.removeprefix(engine.UNDO)
            found.append(self._offer("compensate-step", "Undo …", step=undone))
        return [*found, *self._settling(step)]

    def of_effect(self, effect: Effect) -> list[Offer]:
        """Settling it, on its own page."""
        wanted = f"Settle {effect.idempotency_key} …"
        return [each for each in self._settling(effect.step) if each.label == wanted]

    def _settling(self, step: StepPicture | Step) -> list[Offer]:
        if step.state in _AT_WORK:
            return []
        return [
            self._offer("settle-effect", f"Settle {key} …", step=step.key, effect_key=key)
            for key in self._in_doubt.get((step.key, step.scope), ())
        ]

    def of_checkpoint(self, step: Step) -> list[Offer]:
        """Going on from this step, on its own page."""
        if step.scope or step.key not in self._plans or not self.of_run():
            return []
        return [self._offer("resume", "Go on from here …", step=step.key)]

    def _may_retry(self, step: StepPicture | Step) -> bool:
        plan = self._plans.get(step.key)
        return self._halted and plan is not None and step.state in _FAILED and not step.covered_by

    def _may_skip(self, step: StepPicture | Step) -> bool:
        plan = self._plans.get(step.key)
        if plan is None or not plan.optional or step.scope:
            return False
        if step.state in _FAILED:
            return self._halted
        waits = step.state == StepState.WAITING and step.waiting_for != "review"
        active = self._state in _ACTIVE or self._state is RunState.PAUSED
        return active and (waits or step.state == StepState.RETRYING)

    def _may_undo(self, step: StepPicture | Step) -> bool:
        if self._state not in RUN_TERMINAL and self._state is not RunState.PAUSED:
            return False
        if step.key.startswith(engine.UNDO):
            return step.state in _FAILED
        completed = step.state == StepState.COMPLETED and not step.scope
        return completed and step.key in self._undoable

    def _offer(self, word: str, label: str, **target: str) -> Offer:
        act = ACTS[word]
        return Offer(label, address_of(self._run.id, act, **target), word)


def _effects_in_doubt(run: Run) -> Mapping[tuple[str, str], list[str]]:
    found = Effect.objects.filter(run_id=run.id, status__in=_IN_DOUBT).order_by("pk")
    rows = found.values_list("step__key", "step__scope", "idempotency_key")[:_EFFECTS_SHOWN]
    keys: dict[tuple[str, str], list[str]] = {}
    for step, scope, key in rows:
        keys.setdefault((step, scope), []).append(key)
    return keys


# -- what is shown of a preview --------------------------------------------------------------------

_EFFECTS = (
    ("found", "Effects found by their receipts: nobody is called"),
    ("called", "Effects that are called"),
    ("looked_up", "Effects in doubt: looked up first, or a person is asked"),
    ("undone", "Effects that are undone"),
)


def preview_lines(report: RepairReport) -> list[tuple[str, list[str]]]:
    """What would happen, as headings with names below; headings with nothing to say are left out,
    but for what runs again."""
    lines = [
        ("Steps that run again", report.reruns),
        ("Start at once", report.starts),
        ("Steps that are undone", report.undoes),
        ("Stay done: nothing can undo them", report.stays),
        *((text, report.effects.get(name, [])) for name, text in _EFFECTS),
    ]
    kept = lines[0][0]
    return [(text, _plain(names)) for text, names in lines if names or text == kept]


def _plain(names: Iterable[str]) -> list[str]:
    """Compensations are named by what they undo."""
    mark = engine.UNDO
    return [
        f"undoing {name.removeprefix(mark)}" if name.startswith(mark) else name for name in names
    ]


def sentence(error: Exception) -> str:
    """A refusal as one sentence of its own."""
    text = str(error).strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else "It was refused."


def asked_for(act: Act, target: Mapping[str, Any]) -> dict[str, Any]:
    """The order's own words, from what the form says."""
    details = {
        name: target[name]
        for name in ("from_sequence", "effect_key", "outcome", "external_ref", "output")
        if target.get(name) not in (None, "")
    }
    if target.get("with_dependents"):
        details["with_dependents"] = True
    return {
        "action": act.action,
        "step": target.get("step") or "",
        "scope": target.get("scope") or "",
        "details": details,
    }
