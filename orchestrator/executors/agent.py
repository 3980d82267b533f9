"""The step type ``agent``: one question to a model, its answer checked before it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from orchestrator.adapters.llm.base import Completion, ModelRequest
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome, Succeeded
from orchestrator.executors.base import StepContext
from orchestrator.executors.json_output import NotJson, output_error, plain_json
from orchestrator.executors.model_call import (
    call_model,
    condition_failure,
    seconds_allowed,
    usage_of,
)


class AgentExecutor:
    """Renders ``system`` and ``prompt``, asks the model, checks the answer.

    Without ``prompt`` the step's input, as JSON, is the question. ``tools`` (the allow-list) is
    accepted, and no tool is offered to the model yet: an agent answers in one turn.
    """

    queue = "agent"

    def execute(self, context: StepContext) -> Outcome:
        """``{text}``, or with ``output_schema`` the validated value."""
        try:
            request = _request(context)
        except ConditionError as error:
            return condition_failure(str(error))
        completion = call_model(request)
        if isinstance(completion, Failed):
            return completion
        return _answer(completion, context.config.get("output_schema"))

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """An agent never waits for an answer from outside."""
        del config, upstream
        raise TypeError(f"an agent step takes no answer, but got one of kind {answer.kind}")


def _request(context: StepContext) -> ModelRequest:
    config = context.config
    return ModelRequest(
        model=config["model"],
        system=_rendered(context, "system"),
        prompt=_question(context),
        output_schema=config.get("output_schema"),
        max_tokens=config.get("max_tokens"),
        temperature=config.get("temperature"),
        timeout_s=seconds_allowed(context),
        workflow=context.workflow,
        step=context.step_key,
    )


def _question(context: StepContext) -> str:
    if context.config.get("prompt") is None:
        return _as_text(context.input)
    return _rendered(context, "prompt")


def _rendered(context: StepContext, field: str) -> str:
    template = context.config.get(field)
    return "" if template is None else _as_text(context.render(template))


def _as_text(value: Any) -> str:
    # A template that is one ${{ }} keeps its type; a model reads text (FORMAT section 4).
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _answer(completion: Completion, schema: Mapping[str, Any] | None) -> Outcome:
    usage = usage_of(completion)
    try:
        output = _parsed(completion.text, schema)
    except NotJson as problem:
        message = f"the model's answer cannot be used: {problem}"
        return Failed(
            error=StepError(error_class=ErrorClass.SCHEMA_ERROR, message=message), usage=usage
        )
    error = output_error(output, schema)
    if error is not None:
        return Failed(error=error, usage=usage)
    return Succeeded(output=output, usage=usage)


def _parsed(text: str, schema: Mapping[str, Any] | None) -> Any:
    if schema is None:
        return plain_json({"text": text})
    try:
        return plain_json(json.loads(text, parse_constant=_refuse_constant))
    except (json.JSONDecodeError, RecursionError) as error:
        raise NotJson(f"it is not JSON ({error})") from error


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON number")
