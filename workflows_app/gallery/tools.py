"""The demo's tools: they behave like real services, each with a ledger of its own.

Every one is idempotent by its effect key and can say afterwards what became of a call. How to make
them fail: ``workflows_app.gallery.faults``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from orchestrator.authoring import Listed, Permanent, ToolContext, tool
from workflows_app.gallery import invoices, knowledge, posts
from workflows_app.gallery.models import DemoLedgerEntry
from workflows_app.gallery.provider import find_entry, list_entries, perform, reference

# The tools of these two stand in files of their own; importing them registers the tools.
__all__ = [
    "charge",
    "invoices",
    "posts",
    "refund",
    "search_knowledge",
    "ticket_history",
    "update_crm",
]

PAYMENTS, CRM, TICKETS, KNOWLEDGE = "payments", "crm", "tickets", "knowledge"

Cents = Annotated[int, Field(gt=0, le=10**12)]
OrderId = Annotated[str, Field(min_length=1, max_length=200)]


class Charge(TypedDict):
    """A payment that was taken."""

    external_ref: str
    status: str
    order_id: str
    amount_cents: int
    currency: str


class Refund(TypedDict):
    """A payment that was given back."""

    external_ref: str
    status: str
    refunded: str
    amount_cents: int


class CrmRecord(TypedDict):
    """An order as the customer register has it."""

    external_ref: str
    order_id: str
    stage: str


class Ticket(TypedDict):
    """An earlier ticket of a customer."""

    id: str
    subject: str
    status: str
    opened_on: str


class History(TypedDict):
    """What the ticket system knows about a customer."""

    customer_email: str
    tickets: list[Ticket]


class Hit(TypedDict):
    """An article that was found."""

    id: str
    title: str
    text: str
    score: float


class Hits(TypedDict):
    """What the knowledge base has on a question, best first."""

    articles: list[Hit]


def find_charge(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """The charge under the call's key, if there is one."""
    return _answer_of(find_entry(ctx, service=PAYMENTS, operation="charge"))


def find_refund(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """The refund under the call's key, if there is one."""
    return _answer_of(find_entry(ctx, service=PAYMENTS, operation="refund"))


def find_update(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """The update under the call's key, if there is one."""
    return _answer_of(find_entry(ctx, service=CRM, operation="update"))


def list_charges(ctx: Any, since: datetime, until: datetime) -> Iterator[Listed]:
    """The charges in the service's book."""
    return list_entries(
        tenant=ctx.tenant, service=PAYMENTS, operation="charge", since=since, until=until
    )


def list_refunds(ctx: Any, since: datetime, until: datetime) -> Iterator[Listed]:
    """The refunds in the service's book."""
    return list_entries(
        tenant=ctx.tenant, service=PAYMENTS, operation="refund", since=since, until=until
    )


@tool(
    "demo.payments.charge",
    idempotent=True,
    effect="required",
    reconcile=find_charge,
    listing=list_charges,
    service="demo.payments",
    trusted=True,
)
def charge(
    ctx: ToolContext,
    order_id: OrderId,
    amount_cents: Cents,
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "EUR",
) -> Charge:
    """Take a payment for an order."""
    asked = {"order_id": order_id, "amount_cents": amount_cents, "currency": currency}

    def take() -> dict[str, Any]:
        ref = reference("pay", ctx.tenant, ctx.idempotency_key or order_id)
        return {"external_ref": ref, "status": "captured", **asked}

    answer: Charge = perform(ctx, service=PAYMENTS, operation="charge", request=asked, act=take)
    return answer


@tool(
    "demo.payments.refund",
    idempotent=True,
    effect="required",
    reconcile=find_refund,
    listing=list_refunds,
    service="demo.payments",
    trusted=True,
)
def refund(ctx: ToolContext, external_ref: str, amount_cents: Cents | None = None) -> Refund:
    """Give a payment back, wholly unless ``amount_cents`` says how much of it."""
    asked = {"external_ref": external_ref, "amount_cents": amount_cents}

    def give_back() -> dict[str, Any]:
        taken = _charge_of(ctx, external_ref)
        amount = amount_cents or taken["amount_cents"]
        if amount > taken["amount_cents"]:
            raise Permanent(f"payments: {external_ref} was only {taken['amount_cents']} cents")
        return {
            "external_ref": reference("re", external_ref, ctx.idempotency_key or ""),
            "status": "refunded",
            "refunded": external_ref,
            "amount_cents": amount,
        }

    answer: Refund = perform(
        ctx, service=PAYMENTS, operation="refund", request=asked, act=give_back
    )
    return answer


@tool(
    "demo.crm.update",
    idempotent=True,
    effect="required",
    reconcile=find_update,
    service="demo.crm",
    trusted=True,
)
def update_crm(
    ctx: ToolContext,
    order_id: OrderId,
    stage: Annotated[str, Field(min_length=1, max_length=50)] = "paid",
) -> CrmRecord:
    """Set the stage of an order in the customer register."""
    asked = {"order_id": order_id, "stage": stage}

    def write() -> dict[str, Any]:
        return {"external_ref": reference("crm", ctx.tenant, order_id), **asked}

    answer: CrmRecord = perform(ctx, service=CRM, operation="update", request=asked, act=write)
    return answer


@tool("demo.tickets.history", idempotent=True, service="demo.tickets")
def ticket_history(
    ctx: ToolContext, customer_email: str, limit: Annotated[int, Field(ge=1, le=50)] = 5
) -> History:
    """The earlier tickets of a customer, newest first."""
    asked = {"customer_email": customer_email, "limit": limit}

    def look_up() -> dict[str, Any]:
        return {"customer_email": customer_email, "tickets": _tickets(customer_email)[:limit]}

    answer: History = perform(ctx, service=TICKETS, operation="history", request=asked, act=look_up)
    return answer


@tool("demo.knowledge.search", idempotent=True, service="demo.knowledge", trusted=True)
def search_knowledge(
    ctx: ToolContext,
    query: Annotated[str, Field(min_length=1, max_length=2000)],
    limit: Annotated[int, Field(ge=1, le=20)] = 3,
) -> Hits:
    """Search the support desk's knowledge base."""
    asked = {"query": query, "limit": limit}

    def look_up() -> dict[str, Any]:
        found = knowledge.search(query, limit=limit)
        return {
            "articles": [
                {"id": each.id, "title": each.title, "text": each.advice, "score": score}
                for each, score in found
            ]
        }

    answer: Hits = perform(ctx, service=KNOWLEDGE, operation="search", request=asked, act=look_up)
    return answer


def _answer_of(entry: DemoLedgerEntry | None) -> dict[str, Any] | None:
    return None if entry is None else entry.response


def _charge_of(ctx: ToolContext, external_ref: str) -> dict[str, Any]:
    entry = DemoLedgerEntry.objects.filter(
        tenant=ctx.tenant,
        service=PAYMENTS,
        operation="charge",
        response__external_ref=external_ref,
    ).first()
    if entry is None:
        raise Permanent(f"payments: there is no payment {external_ref}")
    taken: dict[str, Any] = entry.response
    return taken


def _tickets(customer_email: str) -> list[Ticket]:
    """Zero to three earlier tickets, the same ones for the same customer."""
    known = [
        Ticket(id="T-19022", subject="Invoice address", status="solved", opened_on="2029-11-03"),
        Ticket(id="T-17310", subject="Login on tablet", status="solved", opened_on="2029-08-21"),
        Ticket(id="T-15544", subject="Parcel was late", status="closed", opened_on="2029-02-12"),
    ]
    return known[: int(reference("n", customer_email)[-1], 16) % 4]
