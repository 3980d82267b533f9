"""The step type ``router``: which ways to go, and why. It chooses; the engine decides."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.adapters.llm.base import Choice, ModelRequest
from orchestrator.core import briefing
from orchestrator.core.errors import ConditionError, ErrorClass
from orchestrator.core.outcomes import Answer, Failed, Outcome, Routed, Usage, Waiting
from orchestrator.executors.base import StepContext
from orchestrator.executors.conversation import fingerprint
from orchestrator.executors.journal import Turn
from orchestrator.executors.model_call import (
    Stopwatch,
    ask_model,
    condition_failure,
    model_turn,
)

Route = Mapping[str, Any]

MAX_RECORDED = 800
MAX_WHY = 400
_MAY_DEGRADE = frozenset({ErrorClass.TIMEOUT, ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT})
MODEL_INSTRUCTION = "Choose where this goes. Answer with {wanted} of these ids and nothing else:"


class RouterExecutor:
    """Strategies ``rules``, ``score`` and ``llm``; when none of them chooses, ``default``. When no
    model answers, ``llm`` falls back on the routes' ``when``, then on the default.

    ``Routed.details`` is ``{strategy, mode, inputs, chosen: [{id, reason}], rejected: [{id,
    reason}], defaulted}``, of a router that no model answered also ``degraded: true``: what was
    seen, what was taken, what was not, and why.
    """

    queue = "engine"

    def execute(self, context: StepContext) -> Outcome:
        """The chosen routes; ``condition_error`` when an expression fails or has a wrong type."""
        try:
            return _STRATEGIES[_strategy(context)](context)
        except ConditionError as error:
            return condition_failure(str(error))

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """A router never waits for an answer."""
        del config, upstream
        raise TypeError(f"a router step takes no answer, but got one of kind {answer.kind}")


def _by_rules(context: StepContext) -> Outcome:
    chosen, verdicts = _match(context, context.config["routes"])
    return _decision(context, chosen, verdicts, inputs={"input": _seen(context.input)})


def _match(context: StepContext, routes: Sequence[Route]) -> tuple[list[str], dict[str, str]]:
    """The routes whose rules hold, by the step's mode, and what became of each."""
    verdicts: dict[str, str] = {}
    chosen: list[str] = []
    for route in routes:
        if chosen and _mode(context) == "first":
            verdicts[route["id"]] = "not looked at: an earlier rule matched"
        elif route.get("when") is None:
            verdicts[route["id"]] = "it has no rule; it is taken as the default only"
        else:
            holds = _holds(context, route)
            verdicts[route["id"]] = f"{route['when']} is {str(holds).lower()}"
            chosen += [route["id"]] if holds else []
    return chosen, verdicts


def _holds(context: StepContext, route: Route) -> bool:
    value = context.render(route["when"], bare=True)
    if not isinstance(value, bool):
        raise ConditionError(
            f"route {route['id']}: {route['when']} gives {type(value).__name__}, not true or false"
        )
    return value


def _by_score(context: StepContext) -> Outcome:
    score = context.render(context.config["value"], bare=True)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ConditionError(
            f"value: {context.config['value']} gives {type(score).__name__}, not a number"
        )
    if not math.isfinite(score):
        raise ConditionError(f"value: {context.config['value']} gives {score}, which is no number")
    scored = [route for route in context.config["routes"] if route.get("at_least") is not None]
    reached = [route for route in scored if score >= route["at_least"]]
    if _mode(context) == "first" and reached:
        reached = [max(reached, key=_threshold)]
    chosen = [route["id"] for route in reached]
    verdicts = {
        route["id"]: _score_verdict(route, score, taken=route["id"] in chosen)
        for route in context.config["routes"]
    }
    return _decision(context, chosen, verdicts, inputs={"score": score})


def _threshold(route: Route) -> float:
    threshold: float = route["at_least"]
    return threshold


def _score_verdict(route: Route, score: float, *, taken: bool) -> str:
    if route.get("at_least") is None:
        return "it has no threshold; it is taken as the default only"
    threshold = route["at_least"]
    if score < threshold:
        return f"{score} is below {threshold}"
    return f"{score} reaches {threshold}" + ("" if taken else ", but a higher one is reached too")


def _by_model(context: StepContext) -> Outcome:
    """A model chooses. When none answers, the routes' own rules do, else the default, and the
    decision says so."""
    question = context.render(context.config["question"])
    request = _model_request(context, question)
    answer = _answer_of_model(context, request)
    if isinstance(answer, Failed) and answer.error.error_class in _MAY_DEGRADE:
        return _degraded(context, answer.error.message, question=question)
    if isinstance(answer, Waiting):
        return _degraded(context, answer.why, question=question)
    if isinstance(answer, Failed):
        return replace(answer, usage=context.journal.owed())
    return _chosen_by_model(context, request, answer)


def _answer_of_model(context: StepContext, request: ModelRequest) -> Turn | Failed | Waiting:
    """The answer, stored before anything follows from it; an earlier attempt's, if it is there."""
    asked = fingerprint(request.system, request.prompt)
    known = context.journal.open(asked)
    if known:
        return known[-1]
    answer = ask_model(context, request, Stopwatch.of(context))
    if isinstance(answer, Failed | Waiting):
        return answer
    turn = model_turn(answer)
    seen = {"system": request.system, "background": request.background, "question": request.prompt}
    turn = replace(turn, content={**turn.content, "context": seen})
    context.journal.store(turn)
    return turn


def _chosen_by_model(context: StepContext, request: ModelRequest, turn: Turn) -> Routed:
    text = str(turn.content["text"])
    answered = _ids(text)
    known = [route["id"] for route in context.config["routes"]]
    usable = bool(answered) and set(answered) <= set(known)
    if len(answered) > 1 and _mode(context) == "first":
        usable = False
    chosen = [name for name in known if name in answered] if usable else []
    verdicts = {
        name: "the model chose it" if name in chosen else "the model did not choose it"
        for name in known
    }
    inputs = {
        "question": _seen(request.prompt),
        "answer": text.strip()[:200],
        "model": turn.name,
        "context_sha256": fingerprint(turn.content.get("context")),
    }
    if request.prompt.endswith(briefing.CUT):
        inputs["cut"] = "the question was too long for a routing model, and was cut"
    return _decision(context, chosen, verdicts, inputs=inputs, usage=context.journal.owed())


def _degraded(context: StepContext, why: str, *, question: Any) -> Outcome:
    """No model could be asked: the routes' rules decide, for those that have one."""
    ruled = [route for route in context.config["routes"] if route.get("when") is not None]
    chosen, verdicts = _match(context, ruled) if ruled else ([], {})
    for route in context.config["routes"]:
        verdicts.setdefault(route["id"], "no model could be asked, and it has no rule")
    inputs = {"question": _seen(question), "degraded": why[:MAX_WHY]}
    decided = _decision(context, chosen, verdicts, inputs=inputs, usage=context.journal.owed())
    by = "its rules" if chosen else "the default"
    return replace(
        decided,
        why=f"no model answered, so {by} decided: {decided.why}",
        details={**decided.details, "degraded": True},
    )


def _model_request(context: StepContext, question: Any) -> ModelRequest:
    wanted = "one or more" if _mode(context) == "all" else "exactly one"
    choices = tuple(
        Choice(id=route["id"], description=route.get("description") or "")
        for route in context.config["routes"]
    )
    told = briefing.routes_told([(choice.id, choice.description) for choice in choices])
    text = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False)
    return ModelRequest(
        model=context.config["model"],
        system="\n".join([MODEL_INSTRUCTION.format(wanted=wanted), told]),
        prompt=briefing.bounded(text, briefing.QUESTION),
        background=context.brief(),
        choices=choices,
        workflow=context.workflow,
        step=context.step_key,
    )


def _ids(text: str) -> list[str]:
    parts = text.replace("\n", ",").split(",")
    return [part.strip(" \t\r\"'`.") for part in parts if part.strip(" \t\r\"'`.")]


def _decision(
    context: StepContext,
    chosen: Sequence[str],
    verdicts: Mapping[str, str],
    *,
    inputs: Mapping[str, Any],
    usage: Usage | None = None,
) -> Routed:
    """The routes taken, or the default; the reasons of all of them."""
    default = context.config["default"]
    taken = tuple(chosen) or (default,)
    reasons = dict(verdicts)
    if not chosen:
        said = verdicts.get(default)
        reasons[default] = "the default, as nothing else was chosen" + (
            f" ({said})" if said else ""
        )
    return Routed(
        routes=taken,
        why="; ".join(f"{name}: {reasons[name]}" for name in taken),
        details={
            "strategy": _strategy(context),
            "mode": _mode(context),
            "inputs": dict(inputs),
            "chosen": [{"id": name, "reason": reasons[name]} for name in taken],
            "rejected": [
                {"id": name, "reason": reason}
                for name, reason in reasons.items()
                if name not in taken
            ],
            "defaulted": not chosen,
        },
        usage=usage or Usage(),
    )


def _seen(value: Any) -> Any:
    """The router's own input, or its beginning as text: a decision's record stays small."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_RECORDED else text[:MAX_RECORDED] + "…"


def _strategy(context: StepContext) -> str:
    strategy: str = context.config.get("strategy") or "rules"
    return strategy


def _mode(context: StepContext) -> str:
    mode: str = context.config.get("mode") or "first"
    return mode


_STRATEGIES: Mapping[str, Callable[[StepContext], Outcome]] = {
    "rules": _by_rules,
    "score": _by_score,
    "llm": _by_model,
}
