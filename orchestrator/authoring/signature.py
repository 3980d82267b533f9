"""From a function's signature to the JSON Schema of its arguments and of its answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from orchestrator.authoring.errors import ArgumentMismatch, ToolDefinitionError
from orchestrator.core.problems import pointer_to

CONTEXT_NAMES = ("ctx", "context")
_as_json = json.JSONEncoder(allow_nan=False).encode  # json.dumps would make an encoder each time


class _PlainJsonSchema(GenerateJsonSchema):
    """JSON Schema without a generated title on every field."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The typed parameters of one function, less the context."""

    takes_context: bool
    parameters: tuple[str, ...]
    open_ended: bool
    """Whether ``**extra`` takes arguments that have no name of their own."""
    model: type[BaseModel]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None

    def bind(self, value: Any) -> dict[str, Any]:
        """The keyword arguments for a step's input; ``ArgumentMismatch`` if they do not fit.

        An input that is not an object (``merge: list``) goes to the parameter of a function that
        has exactly one. Types are strict: ``"5"`` is no integer. Defaults are left to the function.
        """
        try:
            bound = self.model.model_validate_json(_as_json(self._named(value)), strict=True)
        except ValidationError as error:
            problems = [
                {"pointer": pointer_to(*entry["loc"]), "detail": entry["msg"]}
                for entry in error.errors(include_url=False, include_input=False)
            ]
            raise ArgumentMismatch(_sentence(problems), problems=problems) from error
        except (TypeError, ValueError) as error:
            raise _not_json(error) from error
        return self._given(bound)

    def _named(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        if len(self.parameters) == 1 and not self.open_ended:
            return {self.parameters[0]: value}
        if value is None:
            return {}
        detail = f"an object with the arguments is needed, not {type(value).__name__}"
        raise ArgumentMismatch(detail, problems=[{"pointer": "", "detail": detail}])

    def _given(self, bound: BaseModel) -> dict[str, Any]:
        given = bound.model_fields_set
        named = {
            name: getattr(bound, _field(position))
            for position, name in enumerate(self.parameters)
            if _field(position) in given
        }
        return {**named, **(bound.model_extra or {})}


def read_signature(function: Callable[..., Any]) -> Signature:
    """What ``function`` takes and gives; ``ToolDefinitionError`` if it cannot be a tool."""
    _require_plain_function(function)
    declared = list(inspect.signature(function).parameters.values())
    takes_context = bool(declared) and declared[0].name in CONTEXT_NAMES
    named = declared[1:] if takes_context else declared
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in named)
    named = [each for each in named if each.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = _hints(function, skip=declared[0].name if takes_context else None)
    try:
        model = _arguments_model(function, named, hints=hints, open_ended=open_ended)
        input_schema = model.model_json_schema(schema_generator=_PlainJsonSchema)
        output_schema = _output_schema(hints)
    except PydanticUserError as error:
        raise ToolDefinitionError(f"{_where(function)}: {error.message}") from error
    input_schema.pop("title", None)
    return Signature(
        takes_context=takes_context,
        parameters=tuple(each.name for each in named),
        open_ended=open_ended,
        model=model,
        input_schema=input_schema,
        output_schema=output_schema,
    )


def _arguments_model(
    function: Callable[..., Any],
    named: list[inspect.Parameter],
    *,
    hints: dict[str, Any],
    open_ended: bool,
) -> type[BaseModel]:
    """A model with one aliased field per parameter.

    Fields have names of their own because a parameter may be called ``json`` or ``schema``, which
    a model's attribute may not.
    """
    fields: dict[str, Any] = {}
    for position, parameter in enumerate(named):
        _require_keyword(function, parameter)
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        hint = hints.get(parameter.name, Any)
        fields[_field(position)] = (hint, Field(default, alias=parameter.name))
    config = ConfigDict(extra="allow" if open_ended else "forbid", arbitrary_types_allowed=False)
    return create_model("Arguments", __config__=config, **fields)


def _output_schema(hints: dict[str, Any]) -> dict[str, Any] | None:
    if "return" not in hints:
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(hints["return"])
    schema = adapter.json_schema(mode="serialization", schema_generator=_PlainJsonSchema)
    return schema or None


def _hints(function: Callable[..., Any], *, skip: str | None) -> dict[str, Any]:
    # The context's annotation is left out: authors may import its type for the checker only.
    written = getattr(function, "__annotations__", {})
    wanted = SimpleNamespace(
        __annotations__={name: hint for name, hint in written.items() if name != skip}
    )
    try:
        return get_type_hints(
            wanted, globalns=getattr(function, "__globals__", {}), include_extras=True
        )
    except NameError as error:
        raise ToolDefinitionError(
            f"{_where(function)}: the type {error.name!r} in its signature is not known at module "
            "level; import it for real, not for the type checker alone"
        ) from error


def _require_plain_function(function: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ToolDefinitionError(
            f"{_where(function)}: a tool is a plain function that returns its output; "
            "async functions and generators are not supported"
        )


def _require_keyword(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
        raise ToolDefinitionError(
            f"{_where(function)}: parameter {parameter.name!r} cannot be passed by name; "
            "arguments of a tool come by name"
        )


def _not_json(error: Exception) -> ArgumentMismatch:
    detail = f"the input is not JSON: {error}"
    return ArgumentMismatch(detail, problems=[{"pointer": "", "detail": detail}])


def _field(position: int) -> str:
    return f"p{position}"


def _where(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{getattr(function, '__module__', '?')}.{name}"


def _sentence(problems: list[dict[str, str]]) -> str:
    return "; ".join(f"{each['pointer'] or 'input'}: {each['detail']}" for each in problems[:5])
