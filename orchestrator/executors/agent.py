"""The step type ``agent``: a conversation with a model that may ask for tools, turn by turn.

Each turn is stored before anything follows from it, so that no attempt repeats a model call or a
tool call that came to an end. The model proposes; ``agent_policy`` decides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.adapters.llm.base import ModelRequest, ToolUse
from orchestrator.authoring import registry
from orchestrator.core.durations import format_money, parse_money
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome, Succeeded, Waiting
from orchestrator.executors.agent_policy import Allowed, Policy, Refusal, offers
from orchestrator.executors.base import StepContext, ToolRequest
from orchestrator.executors.conversation import (
    MAX_TURNS,
    Conversation,
    fingerprint,
    shown,
    strangers_in,
)
from orchestrator.executors.journal import Turn
from orchestrator.executors.model_call import Stopwatch, ask_model, condition_failure, model_turn

_TOOL_AGAIN = frozenset({ErrorClass.TRANSIENT, ErrorClass.RATE_LIMIT, ErrorClass.TIMEOUT})


class AgentExecutor:
    """Renders ``system`` and ``prompt``, asks the model, does what it may ask for, checks its
    answer and has it corrected.

    Without ``prompt`` the step's input, as JSON, is the question. ``max_turns`` (10) bounds the
    model's answers, ``cost_limit_usd`` what they may cost together.
    """

    queue = "agent"

    def execute(self, context: StepContext) -> Outcome:
        """``{text}``, or with ``output_schema`` the validated value."""
        try:
            request = _request(context)
        except ConditionError as error:
            return condition_failure(str(error))
        return _Agent(context, request).run()

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """An agent never waits for an answer from outside."""
        del config, upstream
        raise TypeError(f"an agent step takes no answer, but got one of kind {answer.kind}")


class _Agent:
    """One attempt at one conversation."""

    def __init__(self, context: StepContext, request: ModelRequest) -> None:
        self.context = context
        self.request = request
        self.journal = context.journal
        self.watch = Stopwatch.of(context)
        self.listed: Sequence[str] = tuple(context.config.get("tools") or ())
        self.talk = Conversation(
            schema=context.config.get("output_schema"),
            max_turns=context.config.get("max_turns") or MAX_TURNS,
        )
        self.policy = Policy(
            listed=self.listed, strangers=self._strangers, action=self.journal.action
        )

    def run(self) -> Outcome:
        """The end of the conversation, or what keeps it from going on."""
        asked = (self.request.system, self.request.prompt, self.talk.schema, self.listed)
        self.talk.turns += self.journal.open(fingerprint(*asked))
        if isinstance(self.talk.verdict(), Failed):  # an earlier attempt's, to its bad end
            self.journal.restart()
            self.talk.turns.clear()
        while True:
            ended = self.talk.verdict() or self._over_limit() or self._use_tools() or self._ask()
            if ended is not None:
                return self._paid(ended)

    def _paid(self, outcome: Outcome) -> Outcome:
        """The outcome with what is not yet counted of its cost."""
        if isinstance(outcome, Succeeded | Failed):
            return replace(outcome, usage=self.journal.owed())
        return outcome

    def _ask(self) -> Outcome | None:
        request = replace(self.request, messages=self.talk.messages())
        answer = ask_model(self.context, request, self.watch)
        if isinstance(answer, Failed | Waiting):
            return answer
        self._keep(model_turn(answer))
        return None

    def _keep(self, turn: Turn) -> None:
        self.journal.store(turn)
        self.talk.turns.append(turn)

    def _over_limit(self) -> Failed | None:
        """No further question once the limit is reached, or nobody can say whether it is."""
        limit = self.context.config.get("cost_limit_usd")
        if limit is None or not self.talk.turns:
            return None
        spent = self.journal.spent().cost_microusd
        if spent is None:
            return _stopped(
                "cost_unknown",
                "the price of a call is unknown, so cost_limit_usd cannot be kept: give the model"
                " a price in PROVIDERS",
            )
        if spent < parse_money(limit):
            return None
        words = f"the step has spent USD {format_money(spent)} of its cost_limit_usd {limit}"
        return _stopped("cost_limit", words)

    def _use_tools(self) -> Outcome | None:
        """Deal with all that the model asked for; what ends the attempt, or None."""
        for use in self.talk.pending():
            decided = self.policy.decide(use)
            if isinstance(decided, Refusal):
                self._keep(_refused(use, decided))
                continue
            stopped = self._call(use, decided)
            if stopped is not None:
                return stopped
        return None

    def _call(self, use: ToolUse, allowed: Allowed) -> Outcome | None:
        self.context.heartbeat()
        began = time.monotonic()
        outcome = self.context.call_tool(
            ToolRequest(tool=allowed.tool, input=allowed.arguments, effect_key=allowed.effect_key)
        )
        match outcome:
            case Succeeded(output=output):
                self._keep(_used(use, allowed, shown(output), began=began))
                return None
            case Failed(error=error) if error.error_class not in _TOOL_AGAIN:
                words = f"failed: {error.message}"[:2000]
                self._keep(_used(use, allowed, words, began=began, failed=True))
                return None
            case _:  # it may work later, or a person has to look: this attempt is over
                return outcome

    def _strangers(self) -> Sequence[str]:
        config = self.context.config
        asked = [config[name] for name in ("system", "prompt") if config.get(name) is not None]
        trusted = {name: registry.get(name).trusted for name in self.listed if name in registry}
        return (
            *self.context.strangers(asked, with_input=config.get("prompt") is None),
            *strangers_in(self.talk.turns, trusted),
        )


def _request(context: StepContext) -> ModelRequest:
    config = context.config
    return ModelRequest(
        model=config["model"],
        system=_rendered(context, "system"),
        prompt=_question(context),
        output_schema=config.get("output_schema"),
        tools=offers(config.get("tools") or ()),
        max_tokens=config.get("max_tokens"),
        temperature=config.get("temperature"),
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


def _stopped(code: str, message: str) -> Failed:
    error = StepError(error_class=ErrorClass.PERMANENT, message=message, details={"code": code})
    return Failed(error=error)


def _refused(use: ToolUse, refusal: Refusal) -> Turn:
    content = {
        "use": use.id,
        "arguments": use.arguments[:2000],
        "answer": f"refused: {refusal.why}",
        "failed": True,
        "refused": refusal.code,
    }
    return Turn(kind="tool", name=use.name[:200], content=content)


def _used(
    use: ToolUse, allowed: Allowed, answer: str, *, began: float, failed: bool = False
) -> Turn:
    content: dict[str, Any] = {
        "use": use.id,
        "arguments": allowed.arguments,
        "answer": answer,
        "failed": failed,
    }
    if allowed.effect_key is not None:
        content["effect"] = allowed.effect_key
    seconds = round(time.monotonic() - began, 3)
    return Turn(kind="tool", name=allowed.tool, content=content, seconds=seconds)
