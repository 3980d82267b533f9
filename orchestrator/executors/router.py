"""The step type ``router``: which ways to go, and why. It chooses; the engine decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.adapters.llm.base import Choice, ModelRequest
from orchestrator.core.errors import ConditionError
from orchestrator.core.outcomes import Answer, Failed, Outcome, Routed, Usage
from orchestrator.executors.base import StepContext
from orchestrator.executors.model_call import (
    call_model,
    condition_failure,
    seconds_allowed,
    usage_of,
)

Route = Mapping[str, Any]

MAX_RECORDED = 800
MODEL_INSTRUCTION = "Choose where this goes. Answer with {wanted} of these ids and nothing else:"


class RouterExecutor:
    """Strategies ``rules``, ``score`` and ``llm``; when none of them chooses, ``default``.

    ``Routed.details`` is ``{strategy, mode, inputs, chosen: [{id, reason}], rejected: [{id,
    reason}], defaulted}``: what was seen, what was taken, what was not, and why.
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
    verdicts: dict[str, str] = {}
    chosen: list[str] = []
    for route in context.config["routes"]:
        if chosen and _mode(context) == "first":
            verdicts[route["id"]] = "not looked at: an earlier rule matched"
        elif route.get("when") is None:
            verdicts[route["id"]] = "it has no rule; it is taken as the default only"
        else:
            holds = _holds(context, route)
            verdicts[route["id"]] = f"{route['when']} is {str(holds).lower()}"
            chosen += [route["id"]] if holds else []
    return _decision(context, chosen, verdicts, inputs={"input": _seen(context.input)})


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
    routes: Sequence[Route] = context.config["routes"]
    question = context.render(context.config["question"])
    completion = call_model(_model_request(context, question))
    if isinstance(completion, Failed):
        return completion
    answered = _ids(completion.text)
    known = [route["id"] for route in routes]
    usable = bool(answered) and set(answered) <= set(known)
    if len(answered) > 1 and _mode(context) == "first":
        usable = False
    chosen = [name for name in known if name in answered] if usable else []
    said = completion.text.strip()[:200]
    verdicts = {
        name: "the model chose it" if name in chosen else "the model did not choose it"
        for name in known
    }
    inputs = {"question": question, "answer": said, "model": completion.model}
    return _decision(context, chosen, verdicts, inputs=inputs, usage=usage_of(completion))


def _model_request(context: StepContext, question: Any) -> ModelRequest:
    wanted = "one or more" if _mode(context) == "all" else "exactly one"
    choices = tuple(
        Choice(id=route["id"], description=route.get("description") or "")
        for route in context.config["routes"]
    )
    lines = [f"{choice.id}: {choice.description}".rstrip(": ") for choice in choices]
    return ModelRequest(
        model=context.config["model"],
        system="\n".join([MODEL_INSTRUCTION.format(wanted=wanted), *lines]),
        prompt=question if isinstance(question, str) else json.dumps(question, ensure_ascii=False),
        choices=choices,
        timeout_s=seconds_allowed(context),
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
