"""Which workflows the gallery holds, and an input that each of them runs with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent

_SAMPLES: dict[str, dict[str, Any]] = {
    "customer_support": {
        "ticket_id": "T-20417",
        "customer_email": "maria.keller@example.com",
        "customer_name": "Maria Keller",
        "subject": "Charged twice for my annual plan",
        "message": (
            "Hello, my card statement shows two payments of 49.00 EUR on the same day for one "
            "annual plan (invoice INV-8841). I only ordered once. Please refund the second "
            "payment soon, I am quite upset. Regards, Maria Keller"
        ),
    },
    "document_processing": {
        "document_id": "D-3107",
        "text": (
            "Vendor: Nordlicht Papier GmbH\nInvoice: NP-2030-0117\nDate: 2030-01-14\n"
            "\f"
            "Items: 40 boxes of paper, 12 folders\nTotal: 1284.50 EUR\n"
        ),
        "reply_to": "maria.keller@example.com",
    },
    "content_moderation": {
        "content_id": "P-5512",
        "author_email": "maria.keller@example.com",
        "text": "I will find you and you will regret this, you idiot.",
    },
    "content_appeal": {
        "content_id": "P-5513",
        "author_email": "maria.keller@example.com",
        "text": "You idiot of a lamp, I said, and hit the switch again.",
    },
    "order_payment": {
        "order_id": "A-1001",
        "amount_cents": 4900,
        "customer_email": "maria.keller@example.com",
    },
    "order_approval": {
        "order_id": "A-1002",
        "amount_cents": 125000,
        "customer_email": "maria.keller@example.com",
    },
}


def files() -> list[Path]:
    """The documents to publish, by name; each file is called like its workflow.

    A child's name comes before its parent's (``content_appeal``, ``content_moderation``), so that
    they can be published in this order.
    """
    return sorted(_FOLDER.glob("*.yaml"))


def sample_input(workflow: str) -> dict[str, Any]:
    """A fresh copy of an input for the workflow; KeyError when the gallery has none."""
    return dict(_SAMPLES[workflow])
