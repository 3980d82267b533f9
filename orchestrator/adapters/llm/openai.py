"""OpenAI, and whoever speaks its chat completions: one POST, no library in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.adapters.llm.base import (
    Asked,
    Completion,
    Message,
    ModelRequest,
    Result,
    Said,
    ToolOffer,
    ToolUse,
)
from orchestrator.adapters.llm.endpoints import Endpoint
from orchestrator.adapters.llm.exchange import clean, malformed, post
from orchestrator.adapters.llm.wording import (
    opening_words,
    real_name,
    system_words,
    wire_names,
    without_fence,
)

Json = dict[str, Any]


class OpenAIModels:
    """A provider with the chat completions API."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def has(self, model: str) -> bool:
        """Whether the settings allow the model; without a list of models, any name."""
        return bool(model) and (not self.endpoint.models or model in self.endpoint.models)

    def complete(self, request: ModelRequest, *, model: str) -> Completion:
        """The first choice of the answer."""
        key = self.endpoint.secret(request.tenant)
        answer = post(
            self.endpoint,
            "/chat/completions",
            self._body(request, model),
            model=model,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout_s=request.timeout_s,
        )
        return self._read(answer, request, model)

    def _body(self, request: ModelRequest, model: str) -> Json:
        names = wire_names(request.tools)
        body: Json = {"model": model, "messages": list(_messages(request, names)), "stream": False}
        if request.max_tokens is not None:
            own = self.endpoint.url.startswith("https://api.openai.com/")
            # The newer name is OpenAI's own; others still know the older one only.
            body["max_completion_tokens" if own else "max_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = [_tool(tool, names) for tool in request.tools]
        body |= self._form(request)
        return body

    def _form(self, request: ModelRequest) -> Json:
        if request.output_schema is None or self.endpoint.structured == "prompt":
            return {}
        if self.endpoint.structured == "object":
            return {"response_format": {"type": "json_object"}}
        shape = {"name": "answer", "schema": request.output_schema, "strict": False}
        return {"response_format": {"type": "json_schema", "json_schema": shape}}

    def _read(self, answer: Json, request: ModelRequest, model: str) -> Completion:
        who = f"{self.endpoint.name}:{model}"
        try:
            message = answer["choices"][0]["message"]
            text = _text(message)
            uses = tuple(_uses(message, wire_names(request.tools)))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise malformed(who, f"not a chat completion ({type(error).__name__})") from error
        tokens_in, tokens_out, cached = _tokens(answer)
        price = self.endpoint.prices.get(model)
        cost = None
        if price is not None and tokens_in + tokens_out > 0:
            cost = price.cost(tokens_in=tokens_in, tokens_out=tokens_out, cached=cached)
        return Completion(
            text=without_fence(text, request),
            model=who,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_microusd=cost,
            uses=uses,
            price=str(price) if price is not None else "",
        )


def _messages(request: ModelRequest, names: Mapping[str, str]) -> Iterator[Json]:
    system = system_words(request)
    if system:
        yield {"role": "system", "content": system}
    yield {"role": "user", "content": opening_words(request)}
    for message in request.messages:
        yield _message(message, names)


def _message(message: Message, names: Mapping[str, str]) -> Json:
    match message:
        case Asked(text=text):
            return {"role": "user", "content": text}
        case Result(use_id=use_id, text=text):
            return {"role": "tool", "tool_call_id": use_id, "content": text}
        case Said(text=text, uses=()):
            return {"role": "assistant", "content": text}
        case Said(text=text, uses=uses):
            calls = [
                {
                    "id": use.id,
                    "type": "function",
                    "function": {
                        "name": names.get(use.name, use.name),
                        "arguments": use.arguments,
                    },
                }
                for use in uses
            ]
            return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _tool(tool: ToolOffer, names: Mapping[str, str]) -> Json:
    function = {
        "name": names[tool.name],
        "description": tool.description[:1024],
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _text(message: Json) -> str:
    content = message.get("content")
    if content is None:
        content = message.get("refusal") or ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    if not isinstance(content, str):
        raise TypeError("content")
    return clean(content)


def _uses(message: Json, names: Mapping[str, str]) -> Iterator[ToolUse]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        name, arguments = function["name"], function.get("arguments") or ""
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise TypeError("tool_calls")
        given = str(call.get("id") or "")
        yield ToolUse(
            id=clean(given), name=real_name(clean(name), names), arguments=clean(arguments)
        )


def _tokens(answer: Json) -> tuple[int, int, int]:
    """Tokens in, out, and those in that came from a cache; 0 where nothing was said."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return (
        count(usage.get("prompt_tokens")),
        count(usage.get("completion_tokens")),
        count(cached),
    )


def count(value: Any) -> int:
    """A number of tokens as a provider gave it; what is none counts as 0."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
    return value if usable else 0
