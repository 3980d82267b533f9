"""The gallery once more, written in Python: each is the same document as the YAML beside it."""

from workflows_app.gallery.workflows.customer_support import flow as customer_support
from workflows_app.gallery.workflows.order_approval import flow as order_approval
from workflows_app.gallery.workflows.order_payment import flow as order_payment

__all__ = ["customer_support", "order_approval", "order_payment"]
