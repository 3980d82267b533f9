"""JSON Schema 2020-12 checks that never leave this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from orchestrator.core.problems import pointer_to

MAX_PROBLEMS = 20


class BadSchema(ValueError):
    """The schema itself is not a valid JSON Schema 2020-12 (remote ``$ref`` included)."""


def schema_problems(schema: Mapping[str, Any], value: Any) -> list[dict[str, str]]:
    """Where ``value`` breaks ``schema``: ``{pointer, detail}`` entries, empty when it fits.

    ``$ref`` is local only: nothing is fetched. ``BadSchema`` when the schema is none.
    """
    try:
        validator = jsonschema_rs.Draft202012Validator(
            dict(schema), validate_formats=True, offline=True
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise BadSchema(str(error).split("\n", 1)[0]) from error
    problems = []
    for problem in validator.iter_errors(value):
        problems.append({"pointer": pointer_to(*problem.instance_path), "detail": problem.message})
        if len(problems) == MAX_PROBLEMS:
            break
    return problems
