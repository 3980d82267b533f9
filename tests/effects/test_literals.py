"""Parameters that must stand in the document as they are, found at publish."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.definition import parse_document
from orchestrator.core.validation import validate


def problems(step: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    value = {"schema": "orchestrator/v1", "name": "flow", "steps": {"a": step, **more}}
    document, wrong = parse_document(value)
    assert document is not None, wrong
    found = validate(document, engine.InstalledParts())
    return [(p.code, p.pointer) for p in found if p.code == "not_literal"]


def query(**given: Any) -> dict[str, Any]:
    fixed = {"database": "erp", "statement": "SELECT %(id)s"}
    return {"type": "tool", "tool": "sql.query", "input": {**fixed, **given}}


def test_values_may_come_from_the_run_but_not_the_statement() -> None:
    assert problems(query(params={"id": "${{ input.id }}"})) == []
    assert problems(query(statement="SELECT ${{ input.id }}")) == [
        ("not_literal", "/steps/a/input/statement")
    ]
    assert problems(query(database="${{ input.name }}")) == [
        ("not_literal", "/steps/a/input/database")
    ]


@pytest.mark.parametrize("given", ["${{ input }}", {"${{ input.k }}": 1, "statement": "SELECT 1"}])
def test_an_input_that_is_made_while_running_leaves_everything_open(given: Any) -> None:
    found = problems({**query(), "input": given})
    assert {code for code, _ in found} == {"not_literal"}


def test_an_input_that_is_merged_is_refused() -> None:
    step = {"type": "tool", "tool": "sql.query"}
    assert ("not_literal", "/steps/a/input") in problems(step)


def test_a_compensation_is_held_to_it_too() -> None:
    say = {"type": "tool", "tool": "transform", "input": {}}
    undo = {"tool": "sql.execute", "input": {"statement": "${{ input.s }}", "database": "erp"}}
    found = problems({**say, "compensate": {**undo, "effect": {"key": "undo:1"}}})
    assert found == [("not_literal", "/steps/a/compensate/input/statement")]


def test_an_agent_is_offered_no_tool_whose_text_is_fixed(db: None) -> None:
    agent = {"type": "agent", "model": "fast", "prompt": "x", "tools": ["transform", "sql.query"]}
    assert problems(agent) == [("not_literal", "/steps/a/tools/1")]
