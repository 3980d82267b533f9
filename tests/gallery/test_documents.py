"""The gallery's documents: sound, and as the product promises them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from orchestrator.adapters.llm.models import aliases, has_model
from orchestrator.authoring import registry
from orchestrator.core.definition import Document, parse_document
from orchestrator.core.schemas import compile_schema
from orchestrator.core.source import load_yaml
from orchestrator.core.validation import ToolFacts, check_document
from workflows_app.gallery import files, sample_input

ROLES = ("support_lead", "finance", "compliance_officer", "moderator", "operator")


class Installation:
    """What this installation offers, as validation asks for it."""

    queues = ("engine", "agent", "tool", "approval", "subworkflow", "compensation")

    def tool(self, name: str) -> ToolFacts | None:
        return registry.get(name) if name in registry else None

    def tools(self) -> Iterable[str]:
        return registry.names()

    def has_model(self, alias: str) -> bool:
        return has_model(alias)

    def models(self) -> Iterable[str]:
        return aliases()

    def has_role(self, role: str) -> bool:
        return role in ROLES

    def roles(self) -> Iterable[str]:
        return ROLES

    def workflow(self, name: str, version: int | None) -> bool:
        return version is None and name in self.workflows()

    def workflows(self) -> Iterable[str]:
        return [path.stem for path in files()]


def document(name: str) -> Document:
    (path,) = (path for path in files() if path.stem == name)
    parsed, problems = parse_document(load_yaml(path.read_bytes()).value)
    assert problems == []
    assert parsed is not None
    return parsed


def test_the_gallery_holds_its_workflows():
    names = {path.stem for path in files()}

    assert names == {
        "content_appeal",
        "content_moderation",
        "customer_support",
        "document_processing",
        "order_approval",
        "order_payment",
    }


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_document_has_no_problem_and_runs_with_its_sample(path):
    loaded = load_yaml(path.read_bytes())

    parsed, problems = check_document(loaded.value, Installation(), line_of=loaded.line)

    assert [problem.as_json() for problem in problems if problem.severity == "error"] == []
    assert parsed is not None
    assert parsed.name == path.stem
    assert compile_schema(loaded.value["input"]).check(sample_input(path.stem)) == []


def test_customer_support_is_the_promised_graph():
    support = document("customer_support")

    needs = {key: {need.step for need in step.needs} for key, step in support.steps.items()}
    assert needs == {
        "classify": set(),
        "research": {"classify"},
        "fetch_history": {"classify"},
        "draft": {"research", "fetch_history"},
        "review": {"draft"},
        "send": {"review"},
    }
    seconds = {
        key: step.timeout.total_seconds() for key, step in support.steps.items() if step.timeout
    }
    assert (seconds["classify"], seconds["research"], seconds["draft"]) == (30, 120, 60)
    assert seconds["review"] == 4 * 3600
    assert support.steps["research"].cost_limit_usd == 500_000
    assert support.steps["review"].assignees == ("role:support_lead",)
    assert support.budget is not None
    assert support.budget.cost_usd == 2_000_000
    assert support.budget.duration is not None
    assert support.budget.duration.total_seconds() == 600


def test_document_processing_reads_pages_side_by_side_and_asks_when_unsure():
    steps = document("document_processing").steps

    assert steps["read"].for_each is not None
    assert (steps["trust"].type, steps["trust"].strategy) == ("router", "score")
    assert {route.id: route.to for route in steps["trust"].routes} == {
        "sure": ("file",),
        "unsure": ("check",),
    }
    assert steps["check"].type == "human_gate"


def test_content_moderation_asks_a_model_and_leaves_an_appeal_to_a_child():
    steps, appeal = document("content_moderation").steps, document("content_appeal").steps

    assert (steps["screen"].type, steps["screen"].strategy) == ("router", "llm")
    assert (steps["appeal"].type, steps["appeal"].workflow) == ("sub_workflow", "content_appeal")
    assert appeal["decide"].type == "human_gate"
    assert [need.step for need in appeal["decide"].needs] == ["appeal"]


def test_order_payment_is_the_contracts_example():
    payment = document("order_payment")

    assert list(payment.steps) == ["approve", "charge", "update_crm", "send_receipt"]
    keys = {key: step.effect.key for key, step in payment.steps.items() if step.effect}
    assert keys == {
        "charge": "pay:${{ input.order_id }}",
        "update_crm": "crm:${{ input.order_id }}",
        "send_receipt": "mail:${{ input.order_id }}",
    }
    assert payment.steps["charge"].compensate is not None
    assert payment.steps["charge"].compensate.tool == "demo.payments.refund"


def test_a_sample_can_be_changed_without_changing_the_next_one():
    sample_input("order_payment")["order_id"] = "other"

    assert sample_input("order_payment")["order_id"] == "A-1001"


def test_an_order_can_be_approved_without_a_mail_address():
    (path,) = (path for path in files() if path.stem == "order_approval")
    schema = compile_schema(load_yaml(path.read_bytes()).value["input"])

    assert schema.accepts({"order_id": "A", "amount_cents": 1})
    assert not schema.accepts({"order_id": "A", "amount_cents": 0})
