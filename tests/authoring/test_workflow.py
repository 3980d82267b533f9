"""Workflows written in Python: the same document, byte for byte, and wrong ones told where."""

from __future__ import annotations

import inspect
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from orchestrator.authoring import Workflow, WorkflowError, blocks, cel, need, to_python, tool
from orchestrator.authoring.registry import registry
from orchestrator.core.definition import canonical_json, parse_document
from orchestrator.core.document import Document
from orchestrator.core.source import load_yaml
from orchestrator.core.step_kinds import STEP_CLASSES
from orchestrator.core.yaml_writing import to_yaml
from tests.authoring.valid_documents import documents
from tests.core.documents import ORDER_PAYMENT

ANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
METHODS = {kind: getattr(Workflow, kind) for kind in STEP_CLASSES}
BLOCKS = {
    "agent": blocks.AgentBlock,
    "tool": blocks.StepBlock,
    "human_gate": blocks.HumanGateBlock,
    "sub_workflow": blocks.StepBlock,
    "router": blocks.RouterBlock,
    "wait": blocks.WaitBlock,
}


def written(source: str) -> Workflow:
    names: dict[str, Any] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names["flow"]


@ANY
@given(documents())
def test_any_document_comes_back_from_each_face_byte_for_byte(value: dict[str, Any]) -> None:
    document, problems = parse_document(value)
    assert document is not None, problems

    taken = Workflow.from_document(value)
    code = written(to_python(value))
    text = load_yaml(to_yaml(value).encode()).value

    assert taken.canonical == code.canonical == canonical_json(text) == canonical_json(value)
    assert list(taken.document()["steps"]) == list(code.document()["steps"]) == list(value["steps"])


@pytest.mark.parametrize(
    "text", ["\x85", "a\u2028b", "\ufeff", "a\n\x85b\n", "\x1b[0m", " a\r\nb", "\x9f"]
)
def test_what_yaml_takes_for_a_line_break_comes_back_as_it_was(text: str) -> None:
    assert load_yaml(to_yaml({"a": text}).encode()).value == {"a": text}


def test_a_workflow_written_by_hand_is_the_yaml_document() -> None:
    flow = Workflow(
        "order_payment",
        title="Order payment",
        input={
            "type": "object",
            "required": ["order_id", "amount_cents", "customer_email"],
            "properties": {
                "order_id": {"type": "string"},
                "amount_cents": {"type": "integer", "exclusiveMinimum": 0},
                "customer_email": {"type": "string", "format": "email"},
            },
        },
        budget={"cost_usd": 2.0, "duration": timedelta(minutes=10), "on_exceeded": "pause"},
        timeout=timedelta(days=30),
        sla={"complete_within": "8d"},
        max_parallel=10,
        labels={"waiting": "Approval pending", "completed": "Paid"},
        triggers=(),
        on_error="fail",
        defaults={
            "timeout": "5m",
            "retry": {
                "max_retries": 3,
                "backoff": "exponential",
                "base_delay": "2s",
                "max_delay": timedelta(seconds=60),
                "on": ("timeout", "rate_limit", "transient"),
            },
        },
    )
    order = flow.input.order_id
    approve = flow.human_gate(
        "approve", assignees=["role:finance"], timeout="7d", on_timeout="reject", on_reject="end"
    )
    charge = flow.tool(
        "charge",
        "demo.payments.charge",
        needs=[approve],
        input={"order_id": order, "amount_cents": flow.input["amount_cents"]},
        effect={"key": f"pay:{order}"},
        compensate={
            "tool": "demo.payments.refund",
            "input": {"external_ref": cel("steps.charge.output").external_ref},
            "effect": {"key": f"refund:{order}"},
        },
    )
    flow.tool(
        "update_crm",
        "demo.crm.update",
        needs=[charge],
        input={"order_id": order},
        effect={"key": f"crm:{order}"},
    )
    flow.tool(
        "send_receipt",
        "mail.send",
        needs=[flow.step("update_crm")],
        input={
            "to": flow.input.customer_email,
            "subject": "Receipt",
            "text": f"Thank you for {order}",
        },
        effect={"key": f"mail:{order}"},
    )
    flow.returns({"payment": charge.output.external_ref})

    value = load_yaml(ORDER_PAYMENT.encode()).value
    # The units of a duration are the author's: a timedelta is written in the largest that fits.
    value["defaults"]["retry"]["max_delay"] = "1m"
    assert flow.canonical == canonical_json(value)


def test_the_types_know_every_key_of_the_document_and_no_other() -> None:
    def keys(model: Any) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    def typed(block: Any) -> set[str]:
        return {key.removesuffix("_") for key in block.__required_keys__ | block.__optional_keys__}

    assert typed(blocks.WorkflowBlock) | {"schema", "name", "steps"} == keys(Document)
    for kind, model in STEP_CLASSES.items():
        first = set(list(inspect.signature(METHODS[kind]).parameters)[2:]) - {"block"}
        assert typed(BLOCKS[kind]) | first | {"type"} == keys(model), kind
    for name, block in {
        "retry": blocks.RetryBlock,
        "effect": blocks.EffectBlock,
        "compensate": blocks.CompensateBlock,
        "for_each": blocks.ForEachBlock,
        "repeat": blocks.RepeatBlock,
    }.items():
        model = STEP_CLASSES["tool"].model_fields[name].annotation.__args__[0]
        assert typed(block) == keys(model), name


@pytest.mark.parametrize(
    ("expression", "bare"),
    [
        (cel("input").a.b[0]["c d"].e, 'input.a.b[0]["c d"].e'),
        (cel("input")["in"].x, 'input["in"].x'),
        (cel("a ? b : c").x, "(a ? b : c).x"),
        (cel("input.n") >= 5, "input.n >= 5"),
        (cel("input.n") == None, "input.n == null"),  # noqa: E711 - what is tested
        ((cel("input.n") > 1) & ~(cel("input.s") != "x"), '(input.n > 1) && (!(input.s != "x"))'),
        (
            (cel("input.n") < 1) | (cel("input.n") <= cel("input.m")),
            "(input.n < 1) || (input.n <= input.m)",
        ),
    ],
)
def test_expressions_are_cel(expression: Any, bare: str) -> None:
    assert f"{expression:cel}" == bare
    assert f"{expression}" == str(expression) == f"${{{{ {bare} }}}}"


def test_an_expression_is_bare_where_cel_stands_and_a_template_in_data() -> None:
    flow = Workflow("flow")
    ok = cel("output.ok")
    first = flow.tool("first", "transform", input={"when": flow.input.a, "value": [flow.input.b]})
    flow.tool(
        "second",
        "transform",
        needs=[need(first, when=ok, on="any"), {"step": first, "when": ok}],
        when=flow.input.a,
        repeat={"until": ok, "max": 2},
        merge={"expression": first.output},
    )
    flow.router(
        "third", strategy="score", value=flow.input.n, routes=[{"id": "x", "to": [], "when": ok}]
    )

    steps = flow.document()["steps"]
    assert steps["first"]["input"] == {"when": "${{ input.a }}", "value": ["${{ input.b }}"]}
    assert steps["second"] == {
        "type": "tool",
        "tool": "transform",
        "needs": [
            {"step": "first", "when": "output.ok", "on": "any"},
            {"step": "first", "when": "output.ok"},
        ],
        "when": "input.a",
        "repeat": {"until": "output.ok", "max": 2},
        "merge": {"expression": "steps.first.output"},
    }
    assert (steps["third"]["value"], steps["third"]["routes"][0]["when"]) == (
        "input.n",
        "output.ok",
    )


def test_a_decorated_function_stands_for_its_tool() -> None:
    @tool("probe.builder")
    def act() -> None:
        """Never called."""

    try:
        flow = Workflow("flow")
        flow.agent("ask", "fast", tools=[act])
        flow.tool("act", act, compensate={"tool": act})
        steps = flow.document()["steps"]
        assert steps["act"]["tool"] == steps["act"]["compensate"]["tool"] == "probe.builder"
        assert steps["ask"]["tools"] == ["probe.builder"]
    finally:
        registry._specs.pop("probe.builder")


def test_money_may_be_a_decimal_and_a_child_the_workflow_itself() -> None:
    child = Workflow("child", budget={"cost_usd": Decimal("0.10")})
    flow = Workflow("flow")
    flow.sub_workflow("call", child, cost_limit_usd=Decimal("0.05"))

    assert child.document()["budget"] == {"cost_usd": "0.10"}
    assert flow.document()["steps"]["call"] == {
        "type": "sub_workflow",
        "workflow": "child",
        "cost_limit_usd": "0.05",
    }
    assert flow.children == ("child",)


def wrong_key(flow: Workflow) -> None:
    flow.tool("b", "transform", retires=1)  # type: ignore[call-arg]


def wrong_step(flow: Workflow) -> None:
    flow.step("frist")


def twice(flow: Workflow) -> None:
    flow.tool("first", "transform")


def step_as_data(flow: Workflow) -> None:
    flow.tool("b", "transform", input={"a": flow.step("first")})


def output_as_need(flow: Workflow) -> None:
    flow.tool("b", "transform", needs=[flow.step("first").output])  # type: ignore[list-item]


def of_another(flow: Workflow) -> None:
    flow.tool("b", "transform", needs=[Workflow("other").tool("a", "transform")])


def no_tool(flow: Workflow) -> None:
    flow.tool("b", len)


def no_json(flow: Workflow) -> None:
    flow.tool("b", "transform", input={"a": {1, 2}})


def no_number(flow: Workflow) -> None:
    flow.tool("b", "transform", input={"a": [float("nan")]})


def output_twice(flow: Workflow) -> None:
    flow.returns(1)
    flow.returns(2)


def truth(flow: Workflow) -> None:
    flow.tool("b", "transform", when=flow.input.a and flow.input.b)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (wrong_key, r'tool\("b"\) knows no "retires": did you mean "retry"\?'),
        (wrong_step, r'flow has no step "frist" so far: did you mean "first"\?'),
        (twice, r'flow has a step "first" already .*test_workflow\.py:\d+'),
        (step_as_data, r"/input/a: StepRef\('first'\) is a step: write \.output"),
        (output_as_need, r"/needs/0: .* is no step: name the step itself"),
        (of_another, r"/needs/0: .* belongs to another workflow"),
        (no_tool, r"/tool: the function len is no tool: decorate it with @tool"),
        (no_json, r"/input/a: a set cannot stand in a document"),
        (no_number, r"/input/a/0: nan is no JSON number"),
        (output_twice, r'flow says "output" twice'),
    ],
)
def test_a_mistake_is_told_at_the_line_that_made_it(write: Any, words: str) -> None:
    flow = Workflow("flow")
    flow.tool("first", "transform")
    with pytest.raises(WorkflowError, match=words) as refused:
        write(flow)
    lines, start = inspect.getsourcelines(write)
    assert refused.value.file == __file__
    assert start < (refused.value.line or 0) < start + len(lines)
    assert str(refused.value).startswith(f"{__file__}:{refused.value.line}: ")


def test_an_expression_has_no_truth_value_in_python() -> None:
    with pytest.raises(WorkflowError, match="write & for and"):
        truth(Workflow("flow"))
    with pytest.raises(WorkflowError, match="knows no format"):
        f"{cel('input'):5}"
    with pytest.raises(WorkflowError, match="cannot be compared with list"):
        assert cel("input") == [1]


def test_a_part_of_the_document_leads_back_to_its_line() -> None:
    flow = Workflow("flow")
    flow.tool("first", "transform")

    assert flow.written_at("/steps/first/input").line == flow.place.line + 1
    assert flow.written_at("/title") == flow.written_at("/steps/unknown") == flow.place


def test_what_is_no_document_is_not_taken_for_one() -> None:
    with pytest.raises(WorkflowError, match=r"this is no document: /steps/a"):
        Workflow.from_document(
            {"schema": "orchestrator/v1", "name": "x", "steps": {"a": {"type": "tool"}}}
        )


def test_what_was_given_can_be_changed_without_changing_the_workflow() -> None:
    words = {"type": "object"}
    flow = Workflow("flow", input=words)
    flow.tool("a", "transform")
    words["type"] = "array"
    flow.document()["steps"].clear()

    assert flow.document()["input"] == {"type": "object"}
    assert list(flow.document()["steps"]) == ["a"]
    assert flow.problems() == []
