"""An agent's conversation, rebuilt from its turns: the same turns always mean the same next move.

Pure: what was stored decides, so that an attempt after a crash goes on exactly where it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NoReturn

from orchestrator.adapters.llm.base import Asked, Message, Result, Said, ToolUse
from orchestrator.core.errors import ErrorClass, StepError, storable
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.executors.journal import Turn
from orchestrator.executors.json_output import NotJson, output_error, plain_json

MAX_CORRECTIONS = 2
MAX_TURNS = 10
MAX_SHOWN = 20_000


def fingerprint(*parts: Any) -> str:
    """SHA-256 over the question: another question is another conversation."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class Conversation:
    """The turns so far. ``schema`` is the step's ``output_schema``, ``max_turns`` bounds the
    model's answers, corrections included."""

    schema: Mapping[str, Any] | None
    max_turns: int
    turns: list[Turn] = field(default_factory=list)

    @property
    def n_asked(self) -> int:
        """How often the model has answered."""
        return sum(turn.kind == "model" for turn in self.turns)

    def messages(self) -> tuple[Message, ...]:
        """What followed the prompt, as a model reads it."""
        return tuple(self._messages())

    def _messages(self) -> Iterator[Message]:
        for place, turn in enumerate(self.turns):
            if turn.kind == "tool":
                text = str(turn.content["answer"])
                use_id, failed = str(turn.content["use"]), bool(turn.content.get("failed"))
                yield Result(use_id=use_id, name=turn.name, text=text, failed=failed)
                continue
            uses = uses_of(self.n_model(place), turn)
            yield Said(text=str(turn.content["text"]), uses=uses)
            fault = None if uses else self._fault(turn)
            if fault is not None:
                yield Asked(
                    text=f"Your answer cannot be used: {fault.message}. Answer again, with the"
                    " whole JSON value and nothing else."
                )

    def n_model(self, place: int) -> int:
        """Which answer of the model the turn at ``place`` is, from 1."""
        return sum(turn.kind == "model" for turn in self.turns[: place + 1])

    def pending(self) -> list[ToolUse]:
        """What the model asked for last and has no result yet, in its order."""
        last = self._last_answer()
        if last is None:
            return []
        done = {turn.content["use"] for turn in self.turns[last + 1 :]}
        uses = uses_of(self.n_model(last), self.turns[last])
        return [use for use in uses if use.id not in done]

    def verdict(self) -> Succeeded | Failed | None:
        """The end of it, without usage; None: the model has to be asked (again)."""
        last = self._last_answer()
        if last is None:
            return None
        turn = self.turns[last]
        if turn.content["uses"]:
            return None if self.n_asked < self.max_turns else _out_of_turns(self.max_turns)
        fault = self._fault(turn)
        if fault is None:
            return Succeeded(output=_parsed(str(turn.content["text"]), self.schema))
        if self._n_corrections() >= MAX_CORRECTIONS or self.n_asked >= self.max_turns:
            return Failed(error=fault)
        return None

    def _last_answer(self) -> int | None:
        places = range(len(self.turns) - 1, -1, -1)
        return next((place for place in places if self.turns[place].kind == "model"), None)

    def _n_corrections(self) -> int:
        """Corrections asked for so far: unusable answers before the last one."""
        answers = [t for t in self.turns if t.kind == "model" and not t.content["uses"]]
        return max(len(answers) - 1, 0)

    def _fault(self, turn: Turn) -> StepError | None:
        """Why a last answer cannot be the output; None: it can."""
        try:
            output = _parsed(str(turn.content["text"]), self.schema)
        except NotJson as problem:
            words = f"the model's answer cannot be used: {problem}"
            return StepError(error_class=ErrorClass.SCHEMA_ERROR, message=storable(words))
        return output_error(output, self.schema)


def uses_of(number: int, turn: Turn) -> tuple[ToolUse, ...]:
    """What a model's turn asks for. Its ids may be anything, the same ones twice or none: ours
    are by place."""
    return tuple(
        ToolUse(id=f"use_{number}_{place}", name=use["name"], arguments=use["arguments"])
        for place, use in enumerate(turn.content["uses"], start=1)
    )


def shown(value: Any) -> str:
    """A tool's output as the model reads it, bounded."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " … (cut)"


def _out_of_turns(max_turns: int) -> Failed:
    words = f"the agent has used its {max_turns} turns and still asks for tools: raise max_turns"
    details = {"code": "max_turns"}
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=words, details=details))


def _parsed(text: str, schema: Mapping[str, Any] | None) -> Any:
    if schema is None:
        return plain_json({"text": text})
    try:
        return plain_json(json.loads(text, parse_constant=_refuse_constant))
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, NotJson):
            raise
        raise NotJson(f"it is not JSON ({error})") from error


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON number")


def strangers_in(turns: Sequence[Turn], trusted: Mapping[str, bool]) -> tuple[str, ...]:
    """The tools whose words stand in the conversation and may be anybody's."""
    heard = {
        turn.name
        for turn in turns
        if turn.kind == "tool" and not turn.content.get("refused") and not trusted.get(turn.name)
    }
    return tuple(sorted(heard))
