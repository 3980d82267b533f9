"""The demo's document service: parts pages, puts readings together, files documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from orchestrator.authoring import Permanent, ToolContext, tool
from workflows_app.gallery.provider import find_entry, perform, reference

DOCUMENTS = "documents"
FIELDS = ("vendor", "invoice_number", "total_cents", "currency")
MAX_PAGES = 500


class Page(TypedDict):
    """One page of a document."""

    number: int
    text: str


class Pages(TypedDict):
    """A document in pages."""

    pages: list[Page]
    count: int


class Fields(TypedDict):
    """What is wanted of an invoice; null where it was found on no page."""

    vendor: str | None
    invoice_number: str | None
    total_cents: int | None
    currency: str | None


class Reading(Fields):
    """What was read on one page, and how sure the reader is."""

    confidence: float


class Combined(TypedDict):
    """What a whole document says. ``confidence`` is that of its least sure page."""

    fields: Fields
    confidence: float
    missing: list[str]


class Corrections(TypedDict, total=False):
    """What a person corrected."""

    vendor: str
    invoice_number: str
    total_cents: int
    currency: str


class Filed(TypedDict):
    """A document as it was filed."""

    external_ref: str
    document_id: str
    fields: Fields


@tool("demo.documents.split", idempotent=True, pure=True)
def split(text: Annotated[str, Field(min_length=1)]) -> Pages:
    """Part a text at its form feeds; pages without a word are left out."""
    texts = [part.strip() for part in text.split("\f") if part.strip()]
    if not texts:
        raise Permanent("documents: there is no word in the document")
    if len(texts) > MAX_PAGES:
        raise Permanent(f"documents: {len(texts)} pages; at most {MAX_PAGES} are read")
    pages = [Page(number=number, text=part) for number, part in enumerate(texts, start=1)]
    return Pages(pages=pages, count=len(pages))


@tool("demo.documents.combine", idempotent=True, pure=True)
def combine(pages: list[Reading | None]) -> Combined:
    """The first value of each field, page by page; a field that two pages give differently, or none
    gives, leaves no confidence."""
    readings = [page for page in pages if page is not None]
    values = {name: _distinct(readings, name) for name in FIELDS}
    fields = Fields(**{name: next(iter(found), None) for name, found in values.items()})  # type: ignore[typeddict-item]  # each by its name
    missing = [name for name, found in values.items() if not found]
    agree = all(len(found) <= 1 for found in values.values())
    sure = min((page["confidence"] for page in readings), default=0.0)
    confidence = sure if agree and not missing and len(readings) == len(pages) else 0.0
    return Combined(fields=fields, confidence=confidence, missing=missing)


def find_filed(ctx: ToolContext, **_input: Any) -> dict[str, Any] | None:
    """The document under the call's key, if it was filed."""
    entry = find_entry(ctx, service=DOCUMENTS, operation="file")
    return None if entry is None else entry.response


@tool(
    "demo.documents.file",
    idempotent=True,
    effect="required",
    reconcile=find_filed,
    service="demo.documents",
)
def file(
    ctx: ToolContext,
    document_id: Annotated[str, Field(min_length=1, max_length=200)],
    fields: Fields,
    corrections: Corrections | None = None,
) -> Filed:
    """File a document under what was read, and corrected, in it."""
    right = {**fields, **(corrections or {})}
    asked = {"document_id": document_id, "fields": right}

    def put() -> dict[str, Any]:
        return {"external_ref": reference("doc", ctx.tenant, document_id), **asked}

    answer: Filed = perform(ctx, service=DOCUMENTS, operation="file", request=asked, act=put)
    return answer


def _distinct(readings: Sequence[Reading], name: str) -> list[Any]:
    given = [page.get(name) for page in readings]
    return list(dict.fromkeys(value for value in given if value is not None))
