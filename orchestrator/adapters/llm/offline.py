"""The deterministic offline model: answers for the demo and for tests, without any network.

``offline:echo`` answers the prompt as text; with an output schema the first JSON object in the
prompt that fits, else the smallest valid instance; with choices the id that occurs first in the
prompt, else nothing. ``offline:demo`` asks the script named by ``ORCHESTRATOR["OFFLINE_DEMO"]``
(a dotted path to ``(request) -> str | None``) and answers like ``echo`` where it knows nothing.
Tokens are words; the price per word is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from orchestrator.adapters.llm.base import Completion, ModelError, ModelRequest
from orchestrator.adapters.llm.smallest import smallest_instance
from orchestrator.core.errors import ErrorClass
from orchestrator.core.schemas import SchemaError, compile_schema

MICROUSD_PER_WORD_IN = 3
MICROUSD_PER_WORD_OUT = 15
MAX_OBJECTS_TRIED = 100

Script = Callable[[ModelRequest], str | None]


class OfflineModels:
    """The provider ``offline`` with the models ``echo`` and ``demo``."""

    def has(self, model: str) -> bool:
        """True for ``echo`` and ``demo``."""
        return model in ("echo", "demo")

    def complete(self, request: ModelRequest, *, model: str) -> Completion:
        """The answer that these words always get."""
        scripted = _scripted(request) if model == "demo" else None
        text = echo(request) if scripted is None else scripted
        tokens_in = len(f"{request.system} {request.prompt}".split())
        tokens_out = len(text.split())
        return Completion(
            text=text,
            model=f"offline:{model}",
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_microusd=tokens_in * MICROUSD_PER_WORD_IN + tokens_out * MICROUSD_PER_WORD_OUT,
        )


def echo(request: ModelRequest) -> str:
    """The answer of ``offline:echo``."""
    if request.choices:
        return _first_choice(request)
    if request.output_schema is None:
        return request.prompt
    return json.dumps(_fitting(request), ensure_ascii=False)


def _first_choice(request: ModelRequest) -> str:
    """The id that occurs first in the prompt; of two at the same place the longer one."""
    found = [
        (request.prompt.find(choice.id), -len(choice.id), choice.id)
        for choice in request.choices
        if choice.id in request.prompt
    ]
    return min(found)[2] if found else ""


def _fitting(request: ModelRequest) -> Any:
    schema = request.output_schema or {}
    try:
        compiled = compile_schema(schema)
    except SchemaError as error:
        raise ModelError(
            f"output_schema: {error.pointer}: {error.message}", error_class=ErrorClass.PERMANENT
        ) from error
    fitting = (each for each in _objects(request.prompt) if compiled.accepts(each))
    return next(fitting, None) or smallest_instance(schema)


def _objects(text: str) -> Iterator[Any]:
    """The JSON objects in a text, outermost first, from left to right."""
    decoder = json.JSONDecoder()
    position = text.find("{")
    for _ in range(MAX_OBJECTS_TRIED):
        if position < 0:
            return
        try:
            value, end = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            end = position + 1
        else:
            yield value
        position = text.find("{", end)


def _scripted(request: ModelRequest) -> str | None:
    path = getattr(settings, "ORCHESTRATOR", {}).get("OFFLINE_DEMO")
    if path is None:
        return None
    script: Script = import_string(path)
    return script(request)
