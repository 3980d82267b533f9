"""The step type ``human_gate``: ask, park, and say what the answer means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from approvals_app.policy import Outcome as GateOutcome
from approvals_app.policy import is_assignee
from approvals_app.requests import SYSTEM_TIMEOUT, Asked, NewRequest, open_request
from orchestrator.core.durations import parse_duration
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import Answer, EndRun, Failed, Outcome, Succeeded, Waiting
from orchestrator.executors.base import Rehearsed, StepContext

DEFAULT_TIMEOUT = "24h"


class HumanGateExecutor:
    """Opens a request and waits for a person, for as long as the gate's ``timeout``."""

    queue = "approval"

    def execute(self, context: StepContext) -> Outcome:
        """Store the request, then wait. Asking twice stores it once."""
        try:
            new = _new_request(context)
        except ConditionError as error:
            return _failed(ErrorClass.CONDITION_ERROR, str(error))
        if not open_request(new):
            return _failed(ErrorClass.CANCELLED, "The step was taken away before it could ask.")
        return _waiting(new)

    def rehearse(self, context: StepContext) -> Rehearsed:
        """Who would be asked, and what; nothing is stored."""
        try:
            new = _new_request(context)
        except ConditionError as error:
            return Rehearsed(outcome=_failed(ErrorClass.CONDITION_ERROR, str(error)))
        shown = {
            "assignees": [each.who for each in new.asked if each.tier == 0],
            "later": [
                {"who": each.who, "after_s": each.after.total_seconds()}
                for each in new.asked
                if each.tier > 0
            ],
            "message": new.message,
            "form": new.form,
            "quorum": new.quorum,
            "four_eyes": new.four_eyes,
            "timeout_s": new.timeout.total_seconds(),
        }
        return Rehearsed(outcome=_waiting(new), shown=shown)

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """What a decision, or the end of the time, means for the step.

        A decision's payload is ``{decision: approved | rejected, by, notes, data}``.
        """
        if answer.kind == "decision":
            return _verdict(config, {**answer.payload, "upstream": upstream})
        if answer.kind != "timer":
            raise TypeError(f"a gate waits for a person, but got an answer of kind {answer.kind}")
        return _after_timeout(config, upstream)


def _waiting(new: NewRequest) -> Waiting:
    return Waiting(kind="person", key=new.key, due=new.timeout, why=f"approval by {_names(new)}")


def _new_request(context: StepContext) -> NewRequest:
    config = context.config
    return NewRequest(
        tenant=context.tenant,
        run_id=UUID(context.run_id),
        workflow=context.workflow,
        key=context.step_key,
        scope=context.item_scope,
        attempt=context.attempt,
        fence=context.fence,
        title=config.get("title") or "",
        message=_text(context, config.get("message")),
        form=config.get("form"),
        asked=_asked(context),
        quorum=config.get("quorum", 1),
        four_eyes=config.get("four_eyes", False),
        starter=context.actor,
        upstream=context.input,
        timeout=_timeout(config),
    )


def _asked(context: StepContext) -> tuple[Asked, ...]:
    """All tiers, nobody twice: who is asked at once is not asked again by an escalation.

    With ``on_timeout: escalate`` the end of the time calls every tier that is not yet due.
    """
    config = context.config
    latest = _timeout(config) if config.get("on_timeout") == "escalate" else timedelta.max
    later = config.get("escalate") or ()
    tiers = [
        (timedelta(0), config.get("assignees", ())),
        *((min(parse_duration(tier["after"]), latest), tier["to"]) for tier in later),
    ]
    asked: dict[str, Asked] = {}
    for number, (after, templates) in enumerate(tiers):
        for who in _rendered(context, templates):
            asked.setdefault(who, Asked(who=who, tier=number, after=after))
    if not any(each.tier == 0 for each in asked.values()):
        raise ConditionError("assignees: nobody is named; write for instance role:finance.")
    return tuple(asked.values())


def _rendered(context: StepContext, templates: Iterable[str]) -> Iterable[str]:
    for template in templates:
        who = _text(context, template).strip()
        if not is_assignee(who):
            raise ConditionError(
                f"assignees: {who[:100]!r} names nobody;"
                " write role:finance, group:emea or user:alice."
            )
        yield who


def _text(context: StepContext, template: str | None) -> str:
    value = "" if template is None else context.render(template)
    # A template that is one ${{ }} keeps its type; people read text (FORMAT section 4).
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\x00", "�")


def _timeout(config: Mapping[str, Any]) -> timedelta:
    return parse_duration(config.get("timeout") or DEFAULT_TIMEOUT)


def _names(new: NewRequest) -> str:
    return ", ".join(each.who for each in new.asked if each.tier == 0)


def _after_timeout(config: Mapping[str, Any], upstream: Any) -> Outcome:
    reaction = config.get("on_timeout") or "reject"
    if reaction == "escalate":
        return _escalated(config)
    outcome = GateOutcome.APPROVED if reaction == "approve" else GateOutcome.REJECTED
    output = {
        "decision": str(outcome),
        "by": SYSTEM_TIMEOUT,
        "notes": f"No decision within {config.get('timeout') or DEFAULT_TIMEOUT}.",
        "data": None,
        "upstream": upstream,
    }
    return _verdict(config, output)


def _escalated(config: Mapping[str, Any]) -> Waiting:
    """Wait as long again; the request already knows from when the next tiers may decide."""
    tiers = [who for tier in config.get("escalate") or () for who in tier["to"]]
    named = ", ".join(tiers) if tiers else "the same people again"
    return Waiting(kind="person", due=_timeout(config), why=f"approval overdue, escalated: {named}")


def _verdict(config: Mapping[str, Any], output: dict[str, Any]) -> Outcome:
    if output["decision"] == GateOutcome.APPROVED:
        return Succeeded(output=output)
    reaction = config.get("on_reject") or "fail"
    if reaction == "continue":
        return Succeeded(output=output)
    if reaction == "end":
        return EndRun(output=output, outcome=str(GateOutcome.REJECTED))
    return _rejected(output)


def _rejected(output: Mapping[str, Any]) -> Failed:
    notes = f": {output['notes']}" if output["notes"] else ""
    details = {key: output[key] for key in ("decision", "by", "notes", "data")}
    error = StepError(
        error_class=ErrorClass.REJECTED,
        message=f"rejected by {output['by']}{notes}",
        details=details,
    )
    return Failed(error=error)


def _failed(error_class: ErrorClass, message: str) -> Failed:
    return Failed(error=StepError(error_class=error_class, message=message))
