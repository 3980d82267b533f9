"""Are the JSON Schemas that a document carries valid, and local?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.core.problems import pointer_parts
from orchestrator.core.schemas import SchemaError, compile_schema
from orchestrator.core.step_kinds import HumanGateStep, WaitStep
from orchestrator.core.validation.places import Path
from orchestrator.core.validation.review import Review


def check_schemas(review: Review) -> None:
    """Compile every schema as the run will."""
    for path, schema in _written(review):
        if schema is None:
            continue
        try:
            compile_schema(schema)
        except SchemaError as error:
            review.error(
                "bad_schema",
                (*path, *pointer_parts(error.pointer)),
                f"{error.message} (mend the JSON Schema here).",
            )


def _written(review: Review) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    yield ("input",), review.document.input
    for key, step in review.steps.items():
        yield ("steps", key, "input_schema"), step.input_schema
        yield ("steps", key, "output_schema"), step.output_schema
        if isinstance(step, HumanGateStep):
            yield ("steps", key, "form"), step.form
        if isinstance(step, WaitStep):
            yield ("steps", key, "schema"), step.schema_
