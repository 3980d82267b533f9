"""Charges an order once finance agrees, records it, and sends the receipt."""

from orchestrator.authoring import Workflow
from workflows_app.gallery.tools import charge as charge_card
from workflows_app.gallery.tools import refund, update_crm

flow = Workflow(
    "order_payment",
    title="Order payment",
    description="Charges an order once finance agrees, records it, and sends the receipt.",
    input={
        "type": "object",
        "required": ["order_id", "amount_cents", "customer_email"],
        "properties": {
            "order_id": {"type": "string"},
            "amount_cents": {"type": "integer", "exclusiveMinimum": 0},
            "customer_email": {"type": "string", "format": "email"},
        },
    },
    budget={"cost_usd": 2.00, "duration": "10m", "on_exceeded": "pause"},
    timeout="30d",
    sla={"complete_within": "8d"},
    max_parallel=10,
    labels={"waiting": "Approval pending", "completed": "Paid"},
    triggers=[],
    on_error="fail",
    defaults={
        "timeout": "5m",
        "retry": {
            "max_retries": 3,
            "backoff": "exponential",
            "base_delay": "2s",
            "max_delay": "60s",
            "on": ["timeout", "rate_limit", "transient"],
        },
    },
)
order_id = flow.input.order_id

approve = flow.human_gate(
    "approve", assignees=["role:finance"], timeout="7d", on_timeout="reject", on_reject="end"
)
charge = flow.tool(
    "charge",
    charge_card,
    needs=[approve],
    input={"order_id": order_id, "amount_cents": flow.input.amount_cents},
    effect={"key": f"pay:{order_id}"},
    compensate={
        "tool": refund,
        "input": {"external_ref": "${{ steps.charge.output.external_ref }}"},
        "effect": {"key": f"refund:{order_id}"},
    },
)
record = flow.tool(
    "update_crm",
    update_crm,
    needs=[charge],
    input={"order_id": order_id},
    effect={"key": f"crm:{order_id}"},
)
flow.tool(
    "send_receipt",
    "mail.send",
    needs=[record],
    input={
        "to": flow.input.customer_email,
        "subject": "Receipt",
        "text": f"Thank you for {order_id}",
    },
    effect={"key": f"mail:{order_id}"},
)
flow.returns({"payment": charge.output.external_ref})
