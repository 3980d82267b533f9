"""The document's JSON Schema, generated from the model, for editors and other tools."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from orchestrator.core.document import Document
from orchestrator.core.durations import DURATION_PATTERN

SCHEMA_ID = "urn:orchestrator:workflow:v1"


class _DocumentJsonSchema(GenerateJsonSchema):
    """Words as the author writes them: durations and money are text, private names are hidden."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> dict[str, Any]:
        del schema
        return {
            "type": "string",
            "pattern": DURATION_PATTERN,
            "description": "A duration: 500ms, 30s, 5m, 4h, 7d, or ISO 8601 such as PT4H.",
            "examples": ["30s", "5m", "4h", "7d"],
        }

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """A key that may be left out is not offered as null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Defaults that are values of our own (a join, a block) are told in words, not as JSON."""
        described = self.generate_inner(schema["schema"])
        default = schema.get("default")
        if isinstance(default, str | bool | int):
            return {**described, "default": default}
        return described


def document_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a workflow document; the same bytes for the same model."""
    schema = Document.model_json_schema(
        schema_generator=_DocumentJsonSchema, mode="validation", ref_template="#/$defs/{model}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **schema,
        "title": "Workflow (orchestrator/v1)",
    }


def document_schema_text() -> str:
    """The schema as it is kept in the repository: indented, keys sorted, newline at the end."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(document_schema(), option=options).decode()
