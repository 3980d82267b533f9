"""Document processing and content moderation, from their start to each of their ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.models import Event, Run
from tests.adapters.smtp import PostOffice
from tests.desk.world import TENANT, Caller
from tests.effects.conftest import carrier, options, post
from tests.engine.carrier import Carrier
from workflows_app.gallery import files, sample_input
from workflows_app.gallery.models import DemoLedgerEntry
from workflows_app.models import Tenant
from workflows_app.publishing import YAML, publish

__all__ = ["carrier", "options", "post"]

DAY = 86_400


@pytest.fixture
def desk(carrier: Carrier) -> Caller:
    Tenant.ensure(TENANT)
    for path in files():
        publish(TENANT, path.read_bytes(), YAML, actor="user:author")
    return Caller(roles=("moderator", "operator"), actor="user:mo")


def started(desk: Caller, carrier: Carrier, workflow: str, **changes: Any) -> Run:
    run = desk.started(workflow, input={**sample_input(workflow), **changes})
    carrier.run_all()
    return run


def decide(desk: Caller, carrier: Carrier, decision: str, **more: Any) -> None:
    (request,) = desk.get("/v1/approvals", state="open").body["results"]
    answer = desk.post(f"/v1/approvals/{request['id']}/decision", {"decision": decision, **more})
    assert answer.status == 200, answer.body
    carrier.run_all()


def seen(desk: Caller, run: Run) -> dict[str, Any]:
    return dict(desk.get(f"/v1/workflows/{run.id}").body)


def states(desk: Caller, run: Run) -> dict[str, str]:
    return {step["key"]: step["state"] for step in seen(desk, run)["steps"]}


def booked(service: str) -> list[tuple[str, str | None]]:
    entries = DemoLedgerEntry.objects.filter(service=service).order_by("id")
    return list(entries.values_list("operation", "idempotency_key"))


# -- document processing ---------------------------------------------------------------------------


def test_a_document_that_is_read_surely_is_filed_without_a_person(
    desk: Caller, carrier: Carrier, post: PostOffice
) -> None:
    run = started(desk, carrier, "document_processing")

    done = seen(desk, run)
    assert done["state"] == "completed", done["error"]
    assert done["output"]["fields"] == {
        "vendor": "Nordlicht Papier GmbH",
        "invoice_number": "NP-2030-0117",
        "total_cents": 128450,
        "currency": "EUR",
    }
    assert done["output"]["checked_by"] == "nobody"
    assert states(desk, run)["check"] == "skipped"
    assert booked("documents") == [("file", "file:D-3107")]
    assert len(post.letters) == 1
    assert done["cost_usd"] > 0


def test_an_unsure_reading_is_corrected_by_a_person(
    desk: Caller, carrier: Carrier, post: PostOffice
) -> None:
    smudged = sample_input("document_processing")["text"].replace("NP-2030-0117", "NP-2?30-0?17")
    run = started(desk, carrier, "document_processing", text=smudged)

    assert (seen(desk, run)["state"], seen(desk, run)["waiting_for"]) == ("waiting", "person")
    assert booked("documents") == []
    decide(desk, carrier, "approve", data={"invoice_number": "NP-2030-0117"})

    done = seen(desk, run)
    assert done["state"] == "completed", done["error"]
    assert done["output"]["fields"]["invoice_number"] == "NP-2030-0117"
    assert done["output"]["fields"]["total_cents"] == 128450
    assert done["output"]["checked_by"] == "user:mo"
    decided = Event.objects.get(run_id=run.id, type="router.decided").payload
    assert (decided["routes"], decided["inputs"]) == (["unsure"], {"score": 0.73})


@pytest.mark.parametrize(
    "text",
    [
        "Vendor: A\nInvoice: 1\fVendor: B\nTotal: 1.00 EUR",  # two pages do not agree
        "Vendor: A\nInvoice: 1",  # no total anywhere
    ],
)
def test_a_document_that_contradicts_itself_or_lacks_something_is_looked_at(
    desk: Caller, carrier: Carrier, text: str
) -> None:
    run = started(desk, carrier, "document_processing", text=text)
    decide(desk, carrier, "reject", notes="ask the vendor")

    done = seen(desk, run)
    assert (done["state"], done["outcome"]) == ("completed", "rejected")
    assert booked("documents") == []


def test_many_pages_are_read_each_by_itself(desk: Caller, carrier: Carrier) -> None:
    text = "\f".join(["Vendor: A\nInvoice: 1\nTotal: 1.00 EUR", *["Items: more"] * 11])
    run = started(desk, carrier, "document_processing", text=text)

    pages = [s for s in seen(desk, run)["steps"] if s["key"] == "read" and s["scope"]]
    assert [page["state"] for page in pages] == ["completed"] * 12


# -- content moderation ----------------------------------------------------------------------------


def test_a_harmless_post_is_shown(desk: Caller, carrier: Carrier) -> None:
    run = started(desk, carrier, "content_moderation", text="Look at my cat.")

    done = seen(desk, run)
    assert done["output"] == {"content_id": "P-5512", "sorted_as": "harmless", "shown": True}
    assert booked("content") == [("show", "show:P-5512")]


def test_a_harmful_post_is_removed_and_stays_so_when_nobody_appeals(
    desk: Caller, carrier: Carrier, post: PostOffice, turn_time: Callable[[float], None]
) -> None:
    run = started(desk, carrier, "content_moderation")

    assert (seen(desk, run)["state"], seen(desk, run)["waiting_for"]) == ("waiting", "child")
    assert len(post.letters) == 1
    turn_time(7 * DAY + 60)
    engine.beat_once()
    carrier.run_all()

    done = seen(desk, run)
    assert done["output"] == {"content_id": "P-5512", "sorted_as": "harmful", "shown": False}
    assert booked("content") == [("remove", "remove:P-5512")]


@pytest.mark.parametrize(("decision", "shown"), [("approve", True), ("reject", False)])
def test_an_appeal_is_decided_by_a_moderator(
    desk: Caller, carrier: Carrier, post: PostOffice, decision: str, shown: bool
) -> None:
    run = started(desk, carrier, "content_moderation")
    (child,) = (step for step in seen(desk, run)["steps"] if step["key"] == "appeal")
    signal = {"name": "appeal", "signal_id": "a-1", "payload": {"reason": "I quoted a film."}}
    sent = desk.post(f"/v1/workflows/{child['child_instance_id']}/signals", signal)
    assert sent.status == 202
    carrier.run_all()
    decide(desk, carrier, decision)

    assert seen(desk, run)["output"]["shown"] is shown
    restored = [("show", "restore:P-5512")] if shown else []
    assert booked("content") == [("remove", "remove:P-5512"), *restored]


@pytest.mark.parametrize(("decision", "operation"), [("approve", "show"), ("reject", "remove")])
def test_an_unclear_post_is_judged_by_a_moderator(
    desk: Caller, carrier: Carrier, post: PostOffice, decision: str, operation: str
) -> None:
    text = sample_input("content_appeal")["text"]
    started(desk, carrier, "content_moderation", text=text)
    decide(desk, carrier, decision)

    assert booked("content") == [(operation, f"{operation}:P-5512")]


def test_the_child_runs_by_itself_too(desk: Caller, carrier: Carrier, post: PostOffice) -> None:
    run = started(desk, carrier, "content_appeal")

    assert (seen(desk, run)["state"], seen(desk, run)["waiting_for"]) == ("waiting", "signal")
    assert len(post.letters) == 1
