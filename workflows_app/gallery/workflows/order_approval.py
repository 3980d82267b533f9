"""Finance approves an order; the order is marked, and the customer hears of it."""

from orchestrator.authoring import Workflow, cel
from workflows_app.gallery.tools import update_crm

flow = Workflow(
    "order_approval",
    title="Order approval",
    description="Finance approves an order; the order is marked, and the customer hears of it.",
    input={
        "type": "object",
        "required": ["order_id", "amount_cents"],
        "properties": {
            "order_id": {"type": "string", "minLength": 1},
            "amount_cents": {"type": "integer", "exclusiveMinimum": 0},
            "customer_email": {"type": "string", "format": "email"},
        },
    },
    timeout="7d",
    labels={"waiting": "Approval pending", "completed": "Approved"},
)
order_id = flow.input.order_id

approve = flow.human_gate(
    "approve",
    title="Finance approves",
    assignees=["role:finance"],
    message=f"Order {order_id} of {flow.input.amount_cents} cents: may it go ahead?",
    timeout="2d",
    on_timeout="reject",
    on_reject="end",
)
record = flow.tool(
    "record",
    update_crm,
    title="Mark the order as approved",
    needs=[approve],
    input={"order_id": order_id, "stage": "approved"},
    effect={"key": f"approval:{order_id}"},
)
flow.tool(
    "notify",
    "mail.send",
    title="Tell the customer",
    needs=[record],
    when=cel("has(input.customer_email)"),
    input={
        "to": flow.input.customer_email,
        "subject": f"Your order {order_id}",
        "text": f"Your order {order_id} has been approved.",
    },
    effect={"key": f"approval-mail:{order_id}", "on_doubt": "resend"},
)
flow.returns({"order_id": order_id, "approved_by": approve.output.by, "stage": record.output.stage})
