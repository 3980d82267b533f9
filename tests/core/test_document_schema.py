from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.definition import parse_document
from orchestrator.core.document_schema import document_schema, document_schema_text
from orchestrator.core.schemas import compile_schema
from orchestrator.core.source import load_yaml
from tests.core.documents import ORDER_PAYMENT, document

KEPT = Path(__file__).parents[2] / "docs" / "schema" / "workflow.schema.json"


def test_the_schema_kept_for_editors_is_the_one_that_the_model_gives() -> None:
    assert KEPT.read_text(encoding="utf-8") == document_schema_text(), (
        "run: python manage.py document_schema --output docs/schema/workflow.schema.json"
    )


def test_the_schema_accepts_the_document_of_the_contract() -> None:
    assert compile_schema(document_schema()).check(load_yaml(ORDER_PAYMENT.encode()).value) == []


@pytest.mark.parametrize(
    ("step", "right"),
    [
        ({"needs": ["a", {"step": "b", "on": "failed"}]}, True),
        ({"needs": [{"step": "b", "on": "often"}]}, False),
        ({"join": {"at_least": 2}}, True),
        ({"join": "most"}, False),
        ({"merge": {"expression": "1"}}, True),
        ({"timeout": "5m"}, True),
        ({"timeout": "PT4H"}, True),
        ({"timeout": "5 minutes"}, False),
        ({"timeout": 5}, False),
        ({"cost_limit_usd": "0.50"}, True),
        ({"cost_limit_usd": 0.5}, True),
        ({"cost_limit_usd": "much"}, False),
        ({"neds": []}, False),
        ({"type": "wait", "for": "10m"}, True),
        ({"type": "human_gate", "remind": ["1h", "2h"], "assignees": ["role:x"]}, True),
        ({"type": "human_gate", "remind": "1h"}, True),
        ({"for_each": {"items": [1], "as": "x"}}, True),
        ({"type": "tol"}, False),
    ],
)
def test_the_schema_and_the_model_judge_alike(step: dict[str, Any], right: bool) -> None:
    value = document({"s": step})
    assert compile_schema(document_schema()).accepts(value) is right
    assert (parse_document(value)[0] is not None) is right


def test_every_block_is_titled_and_described() -> None:
    for name, block in document_schema()["$defs"].items():
        assert block.get("title"), name
        assert block.get("description") or "enum" in block, name
