"""Something to try in the console after the demo: orders that wait for an approval."""

from __future__ import annotations

from uuid import uuid4

from approvals_app.models import Request
from config.demo.cast import Cast
from workflows_app.gallery import catalogue
from workflows_app.triggering import start

WAITING = ("order_payment", "order_approval")


def leave_orders_open(cast: Cast) -> None:
    """Have one order of each kind wait for finance; those of an earlier demo are enough."""
    for workflow in WAITING:
        if Request.objects.of(cast.principal.tenant).open().filter(workflow=workflow).exists():
            continue
        # Money moves once per order, for ever; each one here is an order of its own.
        order = f"A-{uuid4().int % 900_000 + 100_000}"
        given = catalogue.sample_input(workflow) | {"order_id": order}
        start(cast.principal, workflow, {"input": given}, key=order)
