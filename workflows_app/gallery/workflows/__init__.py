"""The gallery once more, written in Python: each is the same document as the YAML beside it."""

from workflows_app.gallery.workflows.content_appeal import flow as content_appeal
from workflows_app.gallery.workflows.content_moderation import flow as content_moderation
from workflows_app.gallery.workflows.customer_support import flow as customer_support
from workflows_app.gallery.workflows.document_processing import flow as document_processing
from workflows_app.gallery.workflows.order_approval import flow as order_approval
from workflows_app.gallery.workflows.order_payment import flow as order_payment

__all__ = [
    "content_appeal",
    "content_moderation",
    "customer_support",
    "document_processing",
    "order_approval",
    "order_payment",
]
