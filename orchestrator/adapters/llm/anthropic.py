"""Anthropic's messages API: one POST, no library in between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.adapters.llm.base import (
    Asked,
    Completion,
    Message,
    ModelRequest,
    Result,
    Said,
    ToolUse,
)
from orchestrator.adapters.llm.endpoints import Endpoint
from orchestrator.adapters.llm.exchange import clean, malformed, post
from orchestrator.adapters.llm.openai import count
from orchestrator.adapters.llm.wording import (
    opening_words,
    real_name,
    system_words,
    wire_names,
    without_fence,
)

VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096  # the API has no default of its own
Json = dict[str, Any]


class AnthropicModels:
    """A provider with the messages API."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def has(self, model: str) -> bool:
        """Whether the settings allow the model; without a list of models, any name."""
        return bool(model) and (not self.endpoint.models or model in self.endpoint.models)

    def complete(self, request: ModelRequest, *, model: str) -> Completion:
        """The answer's texts joined, and what it asks for."""
        key = self.endpoint.secret(request.tenant)
        answer = post(
            self.endpoint,
            "/v1/messages",
            _body(request, model),
            model=model,
            headers={"anthropic-version": VERSION, **({"x-api-key": key} if key else {})},
            timeout_s=request.timeout_s,
        )
        return self._read(answer, request, model)

    def _read(self, answer: Json, request: ModelRequest, model: str) -> Completion:
        who = f"{self.endpoint.name}:{model}"
        names = wire_names(request.tools)
        try:
            blocks = list(answer["content"])
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            uses = tuple(_use(block, names) for block in blocks if block["type"] == "tool_use")
        except (KeyError, TypeError, AttributeError) as error:
            raise malformed(who, f"not a message ({type(error).__name__})") from error
        tokens_in, tokens_out, cached = _tokens(answer)
        price = self.endpoint.prices.get(model)
        cost = None
        if price is not None and tokens_in + tokens_out > 0:
            cost = price.cost(tokens_in=tokens_in, tokens_out=tokens_out, cached=cached)
        return Completion(
            text=without_fence(clean(text), request),
            model=who,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_microusd=cost,
            uses=uses,
            price=str(price) if price is not None else "",
        )


def _body(request: ModelRequest, model: str) -> Json:
    names = wire_names(request.tools)
    body: Json = {
        "model": model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": _messages(request, names),
    }
    system = system_words(request)
    if system:
        body["system"] = system
    if request.temperature is not None:
        body["temperature"] = min(request.temperature, 1.0)
    if request.tools:
        body["tools"] = [
            {
                "name": names[tool.name],
                "description": tool.description[:1024],
                "input_schema": tool.input_schema,
            }
            for tool in request.tools
        ]
    return body


def _messages(request: ModelRequest, names: Mapping[str, str]) -> list[Json]:
    """In turns, as the API wants it: neighbours of the same side are one message."""
    found: list[Json] = [_side("user", {"type": "text", "text": opening_words(request)})]
    for message in request.messages:
        for one in _blocks(message, names):
            if one["role"] == found[-1]["role"]:
                found[-1]["content"] += one["content"]
            else:
                found.append(one)
    return found


def _side(role: str, block: Json) -> Json:
    return {"role": role, "content": [block]}


def _blocks(message: Message, names: Mapping[str, str]) -> Iterator[Json]:
    match message:
        case Asked(text=text):
            yield _side("user", {"type": "text", "text": text})
        case Result():
            block = {
                "type": "tool_result",
                "tool_use_id": message.use_id,
                "content": message.text,
                "is_error": message.failed,
            }
            yield _side("user", block)
        case Said():
            if message.text.strip() or not message.uses:  # an empty text is refused there
                yield _side("assistant", {"type": "text", "text": message.text or "(nothing)"})
            for use in message.uses:
                block = {
                    "type": "tool_use",
                    "id": use.id,
                    "name": names.get(use.name, use.name),
                    "input": _object(use.arguments),
                }
                yield _side("assistant", block)


def _object(text: str) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _use(block: Json, names: Mapping[str, str]) -> ToolUse:
    name = block["name"]
    if not isinstance(name, str):
        raise TypeError("tool_use")
    return ToolUse(
        id=clean(str(block.get("id") or "")),
        name=real_name(clean(name), names),
        arguments=clean(json.dumps(block.get("input"))),
    )


def _tokens(answer: Json) -> tuple[int, int, int]:
    """Tokens in (the cached ones too), out, and those in that were read from the cache."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    cached = count(usage.get("cache_read_input_tokens"))
    fresh = count(usage.get("input_tokens")) + count(usage.get("cache_creation_input_tokens"))
    return fresh + cached, count(usage.get("output_tokens")), cached
