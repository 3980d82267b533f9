"""Queues split by rule: by tool, model, tenant and workflow, with a name or a region."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.compiling import compile_workflow
from orchestrator.core.definition import parse_document
from orchestrator.core.routing import Place, QueueRoute, queue_type, route
from orchestrator.core.site import Site

RULES = (
    QueueRoute(tool="erp.*", to=".erp"),
    QueueRoute(model="opus", to="agent.opus"),
    QueueRoute(tenant="eu_*", to="@eu"),
    QueueRoute(type="tool", workflow="nightly_*", to=".low"),
)


def test_without_rules_work_goes_to_the_queue_of_its_type() -> None:
    assert route((), Place(type="tool", tool="erp.book")) == "tool"


def test_a_tool_a_model_a_tenant_and_a_workflow_can_have_their_own_queue() -> None:
    assert route(RULES, Place(type="tool", tool="erp.book")) == "tool.erp"
    assert route(RULES, Place(type="agent", model="opus")) == "agent.opus"
    assert route(RULES, Place(type="tool", tool="mail.send", tenant="eu_acme")) == "tool@eu"
    assert route(RULES, Place(type="tool", workflow="nightly_sync")) == "tool.low"


def test_a_priority_class_can_have_its_own_queue() -> None:
    rules = (QueueRoute(priority="high", to=".high"), QueueRoute(priority="l*", to=".low"))

    assert route(rules, Place(type="tool", priority="high")) == "tool.high"
    assert route(rules, Place(type="agent", priority="low")) == "agent.low"
    assert route(rules, Place(type="tool")) == "tool"


def test_the_class_of_a_document_is_that_of_all_its_steps() -> None:
    undo = {"tool": "noop", "input": {}}
    steps = {"a": {"type": "tool", "tool": "noop", "compensate": undo}, "w": {"for": "1h"}}
    steps["w"] |= {"type": "wait"}
    site = Site(tenant="acme", routes=(QueueRoute(priority="high", to=".high"),))

    def queues(**more: str) -> set[str]:
        value = {"schema": "orchestrator/v1", "name": "x", "steps": steps, **more}
        document, problems = parse_document(value)
        assert document is not None, problems
        kinds = {"tool": "tool", "wait": "engine"}
        found = compile_workflow(document, value, queues=kinds, pins={}, site=site)
        return {step.queue for step in found.steps}

    assert queues(priority="high") == {"tool.high", "engine.high", "compensation.high"}
    assert queues(priority="low") == queues() == {"tool", "engine", "compensation"}


def test_the_first_rule_that_fits_decides() -> None:
    assert route(RULES, Place(type="tool", tool="erp.book", tenant="eu_acme")) == "tool.erp"


def test_a_tenants_region_holds_for_every_type() -> None:
    for kind in ("engine", "tool", "agent", "compensation"):
        assert route(RULES, Place(type=kind, tenant="eu_acme")) == f"{kind}@eu"


def test_a_rule_never_sends_work_to_the_workers_of_another_type() -> None:
    rules = (QueueRoute(tenant="x", to="agent.opus"),)

    assert route(rules, Place(type="tool", tenant="x")) == "tool"


@given(
    st.sampled_from(["tool", "agent", "engine"]),
    st.text(max_size=5),
    st.sampled_from([".a", "@eu", "tool.b", "agent@us", "engine"]),
)
def test_whatever_the_rules_say_the_type_stays(kind: str, tenant: str, to: str) -> None:
    assert queue_type(route((QueueRoute(to=to),), Place(type=kind, tenant=tenant))) == kind
