"""Do the types fit along the edges: from inputs and outputs to the arguments of tools?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.cel_text import ExpressionError, shown_path
from orchestrator.core.cel_text import Path as NamePath
from orchestrator.core.expressions import Program, Template, compile_template, template_texts
from orchestrator.core.problems import pointer_parts, suggestion
from orchestrator.core.schemas import SchemaError, compile_schema
from orchestrator.core.step_kinds import (
    AgentStep,
    AnyStep,
    HumanGateStep,
    RouterStep,
    ToolStep,
    WaitStep,
)
from orchestrator.core.validation.catalogue import ToolFacts
from orchestrator.core.validation.places import Path, Place
from orchestrator.core.validation.review import Review
from orchestrator.core.validation.shapes import (
    AGENT_OUTPUT,
    GATE_OUTPUT,
    ROUTER_OUTPUT,
    Found,
    Json,
    follow,
    overlap,
    resolved,
    types_of,
)

_INPUT_PARTS = 1
_OUTPUT_PARTS = 3


def check_types(review: Review, compiled: list[tuple[Place, Path, Program]]) -> None:
    """Paths against schemas, then every tool's arguments."""
    for _, path, program in compiled:
        for name in program.paths:
            _check_path(review, path, program, name)
    for key, step in review.steps.items():
        if isinstance(step, ToolStep):
            facts = review.catalogue.tool(step.tool)
            if facts is not None:
                _check_call(review, key, step, facts)
        if step.compensate is not None:
            facts = review.catalogue.tool(step.compensate.tool)
            if facts is not None and step.compensate.input is not None:
                _check_arguments(
                    review, ("steps", key, "compensate", "input"), step.compensate.input, facts
                )


def _check_path(review: Review, path: Path, program: Program, name: NamePath) -> None:
    found, parts = _found(review, name)
    if found.broken_at is not None:
        end = len(name) - len(parts) + found.broken_at
        review.error(
            "unknown_property",
            path,
            f"{shown_path(name[:end])} has no {name[end]}: {_known(review, name[:end])}",
        )
    elif (found.optional or found.undeclared) and not _is_tested(program, name):
        review.warn(
            "may_be_missing",
            path,
            f"{shown_path(name)} need not be there, which fails the step: require it in the "
            f"schema or test it with has({shown_path(name)}).",
        )


def _is_tested(program: Program, name: NamePath) -> bool:
    return any(name[: len(tested)] == tested for tested in program.tested)


def _found(review: Review, name: NamePath) -> tuple[Found, NamePath]:
    """Where a path ends by what is declared, and the parts of it that were followed."""
    if name[0] == "input":
        return follow(review.document.input, name[_INPUT_PARTS:]), name[_INPUT_PARTS:]
    if name[0] == "steps" and len(name) >= _OUTPUT_PARTS and name[1] in review.steps:
        parts = name[_OUTPUT_PARTS:]
        if name[2] == "state":
            return follow({"type": "string"}, parts), parts
        if name[2] == "output":
            return follow(output_schema(review, review.steps[str(name[1])]), parts), parts
    return Found(), ()


def _known(review: Review, name: NamePath) -> str:
    schema = _found(review, name)[0].schema
    properties = (schema or {}).get("properties", {})
    return suggestion("", properties) if properties else "it has no keys."


def output_schema(review: Review, step: AnyStep) -> Json | None:
    """What is known about a step's output; None when nothing is."""
    schema = _single_output(review, step)
    if step.for_each is not None:
        return {"type": "array", "items": schema or {}, "$defs": (schema or {}).get("$defs", {})}
    return schema


def _single_output(review: Review, step: AnyStep) -> Json | None:
    if step.fallback is not None:
        return None
    match step:
        case HumanGateStep():
            return GATE_OUTPUT
        case RouterStep():
            return ROUTER_OUTPUT
        case WaitStep():
            return step.schema_
        case AgentStep():
            return step.output_schema or AGENT_OUTPUT
        case ToolStep() if step.output_schema is None:
            facts = review.catalogue.tool(step.tool)
            return None if facts is None else facts.output_schema
        case _:
            return step.output_schema


def _check_call(review: Review, key: str, step: ToolStep, facts: ToolFacts) -> None:
    if step.has_input:
        _check_arguments(review, ("steps", key, "input"), step.input, facts)
    elif step.edges and step.merge.kind == "nested":
        given = {edge.source for edge in review.edges_into[key]}
        path: Path = ("steps", key)
        _check_missing(review, path, given, facts)


def _check_arguments(review: Review, path: Path, value: Any, facts: ToolFacts) -> None:
    schema = facts.input_schema
    properties = schema.get("properties", {})
    if not isinstance(value, Mapping):
        _check_whole(review, path, value, facts)
        return
    if schema.get("additionalProperties", True) is False:
        for name in value:
            if name not in properties:
                mend = suggestion(name, properties) or "remove it."
                review.error(
                    "unknown_argument", (*path, name), f"{facts.name} takes no {name}: {mend}"
                )
    _check_missing(review, path, set(value), facts)
    for name, item in value.items():
        if name in properties:
            _check_value(review, (*path, name), item, _with_defs(properties[name], schema))


def _check_missing(review: Review, path: Path, given: set[str], facts: ToolFacts) -> None:
    for name in facts.input_schema.get("required", ()):
        if name not in given:
            review.error(
                "missing_argument", path, f"{facts.name} needs {name}: add {name} to the input."
            )


def _check_whole(review: Review, path: Path, value: Any, facts: ToolFacts) -> None:
    """An input that is no object goes to a function with exactly one parameter."""
    properties = facts.input_schema.get("properties", {})
    if isinstance(value, str) and list(template_texts(value)):
        return
    if len(properties) == 1:
        only = next(iter(properties.values()))
        _check_value(review, path, value, _with_defs(only, facts.input_schema))
    elif not (value is None and not facts.input_schema.get("required")):
        review.error("type_mismatch", path, f"{facts.name} takes named arguments: write an object.")


def _with_defs(schema: Any, root: Json) -> Json:
    if not isinstance(schema, Mapping):
        return {}
    return {**schema, "$defs": root["$defs"]} if "$defs" in root else schema


def _check_value(review: Review, path: Path, value: Any, schema: Json) -> None:
    try:
        template = compile_template(value, names=None)
    except ExpressionError:
        return  # reported with the expressions
    if template.is_constant:
        _check_constant(review, path, value, schema)
        return
    wanted = types_of(schema, schema)
    given = _types_given(review, value, template)
    if wanted is not None and given is not None and not overlap(given, wanted):
        review.error(
            "type_mismatch",
            path,
            f"{_listed(given)} stands where {_listed(wanted)} is wanted: convert it or use "
            "another value.",
        )
    elif isinstance(value, Mapping | list):
        _check_children(review, path, value, schema)


def _check_children(review: Review, path: Path, value: Any, root: Json) -> None:
    schema = resolved(root, root) or {}
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for name, item in pairs:
        inner = schema.get("items")
        if isinstance(value, Mapping):
            inner = schema.get("properties", {}).get(name)
        if inner is not None:
            _check_value(review, (*path, name), item, _with_defs(inner, root))


def _check_constant(review: Review, path: Path, value: Any, schema: Json) -> None:
    try:
        problems = compile_schema(schema).check(value)
    except SchemaError:
        return  # a tool's own schema is not the author's business
    for problem in problems:
        inner = (*path, *pointer_parts(problem.pointer))
        review.error("type_mismatch", inner, f"{problem.message}: write a value that fits.")


def _types_given(review: Review, value: Any, template: Template) -> frozenset[str] | None:
    """The JSON types that a template can render to; None when that is not known."""
    if isinstance(value, Mapping):
        return frozenset({"object"})
    if isinstance(value, list):
        return frozenset({"array"})
    if not (isinstance(value, str) and template.is_single):
        return frozenset({"string"})
    program = template.programs[0]
    if not program.is_path:
        return None
    name = program.paths[0]
    found, _ = _found(review, name)
    root = review.document.input if name[0] == "input" else None
    return types_of(found.schema, root or found.schema)


def _listed(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))
