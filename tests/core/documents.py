"""Documents and a catalogue, made by intent."""

from __future__ import annotations

from typing import Any

from orchestrator.core.problems import Problem
from orchestrator.core.source import load_yaml
from orchestrator.core.validation import ToolSpec, check_document

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def arguments(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec(
            name="demo.payments.charge",
            input_schema=arguments(
                ["order_id", "amount_cents"], order_id=TEXT, amount_cents=NUMBER
            ),
            output_schema={
                "type": "object",
                "properties": {"external_ref": TEXT},
                "required": ["external_ref"],
            },
            idempotent=True,
            effect="required",
        ),
        ToolSpec(
            name="demo.payments.refund",
            input_schema=arguments(["external_ref"], external_ref=TEXT),
            idempotent=True,
            effect="required",
        ),
        ToolSpec(
            name="demo.crm.update",
            input_schema=arguments(["order_id"], order_id=TEXT),
            idempotent=True,
            effect="required",
        ),
        ToolSpec(
            name="mail.send",
            input_schema=arguments(["to", "subject", "text"], to=TEXT, subject=TEXT, text=TEXT),
            effect="required",
        ),
        ToolSpec(name="sum", input_schema=arguments(["numbers"], numbers={"type": "array"})),
        ToolSpec(name="noop", input_schema={"type": "object"}),
        ToolSpec(name="web", input_schema={"type": "object"}, key_header="Idempotency-Key"),
    )
}


class Installation:
    """A catalogue with five tools, two models, two roles, one published workflow."""

    queues = ("tool", "agent", "engine")

    def tool(self, name: str) -> ToolSpec | None:
        return TOOLS.get(name)

    def tools(self) -> list[str]:
        return list(TOOLS)

    def has_model(self, alias: str) -> bool:
        return alias in self.models()

    def models(self) -> list[str]:
        return ["fast", "deep"]

    def has_role(self, role: str) -> bool:
        return role in self.roles()

    def roles(self) -> list[str]:
        return ["finance", "support_lead"]

    def workflow(self, name: str, version: int | None) -> bool:
        return name == "child" and version in (None, 1)

    def workflows(self) -> list[str]:
        return ["child"]


ORDER_PAYMENT = """\
schema: orchestrator/v1
name: order_payment
title: Order payment
input:
  type: object
  required: [order_id, amount_cents, customer_email]
  properties:
    order_id: {type: string}
    amount_cents: {type: integer, exclusiveMinimum: 0}
    customer_email: {type: string, format: email}
output: {payment: "${{ steps.charge.output.external_ref }}"}
budget: {cost_usd: 2.00, duration: 10m, on_exceeded: pause}
timeout: 30d
sla: {complete_within: 8d}
max_parallel: 10
labels: {waiting: Approval pending, completed: Paid}
triggers: []
on_error: fail
defaults:
  timeout: 5m
  retry:
    max_retries: 3
    backoff: exponential
    base_delay: 2s
    max_delay: 60s
    on: [timeout, rate_limit, transient]
steps:
  approve:
    type: human_gate
    assignees: ["role:finance"]
    timeout: 7d
    on_timeout: reject
    on_reject: end
  charge:
    type: tool
    needs: [approve]
    tool: demo.payments.charge
    input: {order_id: "${{ input.order_id }}", amount_cents: "${{ input.amount_cents }}"}
    effect: {key: "pay:${{ input.order_id }}"}
    compensate:
      tool: demo.payments.refund
      input: {external_ref: "${{ steps.charge.output.external_ref }}"}
      effect: {key: "refund:${{ input.order_id }}"}
  update_crm:
    type: tool
    needs: [charge]
    tool: demo.crm.update
    input: {order_id: "${{ input.order_id }}"}
    effect: {key: "crm:${{ input.order_id }}"}
  send_receipt:
    type: tool
    needs: [update_crm]
    tool: mail.send
    input:
      to: "${{ input.customer_email }}"
      subject: "Receipt"
      text: "Thank you for ${{ input.order_id }}"
    effect: {key: "mail:${{ input.order_id }}"}
"""


def document(steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document of these steps; a step that says no type is a ``noop`` tool."""
    noop = {"type": "tool", "tool": "noop"}
    filled = {key: step if "type" in step else {**noop, **step} for key, step in steps.items()}
    return {"schema": "orchestrator/v1", "name": "example", "steps": filled, **more}


def problems(value: Any) -> list[Problem]:
    """Everything wrong with plain JSON."""
    return check_document(value, Installation())[1]


def problems_of(text: str) -> list[Problem]:
    """Everything wrong with a YAML text, with lines."""
    loaded = load_yaml(text.encode())
    return check_document(loaded.value, Installation(), line_of=loaded.line)[1]


def found(value: Any, *, severity: str = "error") -> set[tuple[str, str]]:
    """``(code, pointer)`` of the problems of that severity."""
    return {(p.code, p.pointer) for p in problems(value) if p.severity == severity}
