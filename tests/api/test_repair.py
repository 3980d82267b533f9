"""Repair and dead letters over the API: what is asked, what is answered, who may."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest
from orchestrator.models import DeadLetter, Repair, Run
from tests.desk.documents import document
from tests.desk.world import Caller, published
from tests.engine import probes
from workflows_app import repairing

pytestmark = pytest.mark.django_db

FLAKY = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}


@pytest.fixture(autouse=True)
def _clean() -> None:
    probes.forget()


@pytest.fixture
def failed(shop: Caller, carried: Any) -> Run:
    """A run whose first step fails once, and would succeed then."""
    published(document("flaky", steps={"a": {**FLAKY, "service": "shop"}, "b": SAY}))
    return fails(shop, carried, "k-1")


SAY = {"type": "tool", "tool": "probe.say", "needs": ["a"], "input": {"value": 1}}


def fails(shop: Caller, carried: Any, key: str, name: str = "flaky") -> Run:
    run = carried(lambda: shop.started(name, key=key))
    run.refresh_from_db()
    assert run.state == "failed"
    return run


def ask(shop: Caller, run: Run, key: str | None = "r-1", **body: Any) -> Any:
    body = {"action": "retry_step", "step": "a", "reason": "mended", **body}
    return shop.post(f"/v1/workflows/{run.id}/repair", body, key=key)


def test_a_failed_run_is_repaired_and_completes(shop: Caller, failed: Run, carried: Any) -> None:
    answer = carried(lambda: ask(shop, failed, expected_version=failed.version))

    assert answer.status == 200
    assert (answer.body["state"], answer.body["reruns"]) == ("running", ["a"])
    run = shop.get(f"/v1/workflows/{failed.id}").body
    assert (run["state"], run["summary"]["repairs"]) == ("completed", 1)
    kept = Repair.objects.get()
    assert (kept.actor, kept.reason, kept.result["state"]) == ("service:shop", "mended", "running")


def test_the_same_key_answers_the_same(shop: Caller, failed: Run, carried: Any) -> None:
    first = carried(lambda: ask(shop, failed))
    again = ask(shop, failed)

    assert again.body == first.body
    assert again.headers["Idempotency-Replayed"] == "true"
    assert ask(shop, failed, reason="another").code == "idempotency_key_reused"


def test_a_blank_reason_is_none(shop: Caller, failed: Run) -> None:
    assert ask(shop, failed, reason="   ").status == 422


def test_a_second_operator_hears_what_forbids_it(shop: Caller, failed: Run) -> None:
    assert ask(shop, failed).status == 200
    late = ask(shop, failed, key="r-2")

    assert (late.status, late.code, late.body["state"]) == (409, "state_conflict", "running")
    assert "the run is running" in late.body["detail"]
    assert ask(shop, failed, key="r-3", expected_version=1).code == "stale_version"


def test_a_preview_needs_no_key_and_changes_nothing(shop: Caller, failed: Run) -> None:
    answer = ask(shop, failed, key=None, preview=True)

    assert answer.status == 200
    assert (answer.body["preview"], answer.body["starts"]) == (True, ["a"])
    assert answer.body["effects"] == {"found": [], "called": [], "looked_up": [], "undone": []}
    failed.refresh_from_db()
    assert failed.state == "failed"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"action": "skip_step"}, 409, "not_optional"),
        ({"action": "retry_step", "step": "b"}, 409, "not_failed"),
        ({"action": "retry_step", "step": "none"}, 404, "not_found"),
        ({"action": "retry_step", "step": None}, 422, "invalid_repair"),
        ({"action": "resume", "step": None}, 422, "invalid_repair"),
        ({"action": "settle_effect", "effect_key": "none"}, 404, "not_found"),
        ({"action": "settle_effect"}, 422, "invalid_repair"),
        ({"action": "compensate_step"}, 409, "not_completed"),
        ({"action": "explode"}, 422, "invalid_body"),
        ({"reason": ""}, 422, "invalid_body"),
        ({"surprise": 1}, 422, "invalid_body"),
    ],
)
def test_what_cannot_be_done_is_said(
    shop: Caller, failed: Run, body: dict[str, Any], status: int, code: str
) -> None:
    answer = ask(shop, failed, **body)

    assert (answer.status, answer.code) == (status, code)
    assert not Repair.objects.exists()


def test_a_repair_without_a_key_is_400(shop: Caller, failed: Run) -> None:
    assert ask(shop, failed, key=None).code == "idempotency_key_invalid"


def test_another_tenants_run_is_not_found(shop: Caller, failed: Run) -> None:
    assert ask(Caller("other"), failed).status == 404
    assert Caller("other").get("/v1/dead-letters").body["results"] == []


def test_a_step_of_a_completed_run_is_undone_by_its_own_compensation(
    shop: Caller, carried: Any
) -> None:
    undo = {"tool": "probe.count", "input": {"name": "undo"}, "effect": {"key": "undo:1"}}
    pay = {"type": "tool", "tool": "probe.say", "input": {"value": 1}, "effect": {"key": "pay:1"}}
    published(document("order", steps={"a": {**pay, "compensate": undo}, "b": SAY}))
    run = carried(lambda: shop.started("order", key="k-1"))
    seen = ask(shop, run, key=None, action="compensate_step", preview=True)
    assert (seen.body["undoes"], seen.body["stays"]) == (["a"], [])
    assert seen.body["effects"]["undone"] == ["pay:1"]
    version = seen.body["state_version"]

    done = carried(lambda: ask(shop, run, action="compensate_step", with_dependents=True))

    assert (done.status, done.body["state"]) == (200, "compensating")
    shown = shop.get(f"/v1/workflows/{run.id}").body
    assert (shown["state"], shown["compensation"]) == ("completed", "full")
    assert probes.calls["undo"] == 1
    again = ask(shop, run, key="r-2", action="compensate_step", expected_version=version)
    assert (again.status, again.code) == (409, "stale_version")


# -- dead letters ----------------------------------------------------------------------------------


def test_a_step_that_gave_up_is_listed_with_its_reason(shop: Caller, failed: Run) -> None:
    (letter,) = shop.get("/v1/dead-letters").body["results"]

    assert letter["instance_id"] == str(failed.id)
    assert (letter["step"], letter["service"], letter["reason"]) == ("a", "shop", "permanent")
    assert letter["error"]["class"] == "permanent"
    for wanted in ({"service": "x"}, {"workflow": "x"}, {"reason": "x"}, {"state": "retried"}):
        assert shop.get("/v1/dead-letters", **wanted).body["results"] == []
    assert shop.get("/v1/dead-letters", run=str(failed.id), service="shop").body["results"]
    assert shop.get("/v1/dead-letters", state="odd").code == "invalid_query"
    assert shop.get("/v1/dead-letters", run="odd").status == 422


def test_many_are_counted_first_and_then_retried(shop: Caller, failed: Run, carried: Any) -> None:
    fails(shop, carried, "k-2")
    wanted = {"filter": {"service": "shop"}, "reason": "the shop is up again"}
    dry = shop.post("/v1/dead-letters/retry", {**wanted, "dry_run": True})
    assert dry.body == {"count": 2, "dry_run": True, "results": [], "next": None}
    assert Run.objects.filter(state="failed").count() == 2

    done = carried(lambda: shop.post("/v1/dead-letters/retry", wanted, key="bulk"))

    assert [each["status"] for each in done.body["results"]] == ["retried", "retried"]
    assert Run.objects.filter(state="completed", workflow="flaky").count() == 2
    assert shop.get("/v1/dead-letters").body["results"] == []
    assert len(shop.get("/v1/dead-letters", state="retried").body["results"]) == 2
    again = shop.post("/v1/dead-letters/retry", wanted, key="bulk")
    assert again.body["count"] == 0


def test_one_that_is_refused_stays_open_and_the_others_go_on(
    shop: Caller, failed: Run, carried: Any
) -> None:
    handled = document("handled", steps={"a": {**FLAKY, "on_error": "continue"}})
    published(handled)
    done = carried(lambda: shop.started("handled", key="k-9"))
    ids = list(DeadLetter.objects.values_list("pk", flat=True))
    assert len(ids) == 2

    answer = shop.post("/v1/dead-letters/retry", {"ids": ids, "reason": "r"}, key="bulk")

    by_run = {each["instance_id"]: each for each in answer.body["results"]}
    assert by_run[str(failed.id)]["status"] == "retried"
    assert by_run[str(done.id)]["status"] == "refused"
    assert by_run[str(done.id)]["code"] == "state_conflict"
    (left,) = shop.get("/v1/dead-letters").body["results"]
    assert left["instance_id"] == str(done.id)


def test_ids_or_a_filter_not_both_and_not_neither(shop: Caller) -> None:
    for body in ({"reason": "r"}, {"reason": "r", "ids": [1], "filter": {}}):
        assert shop.post("/v1/dead-letters/retry", body, key="k").code == "invalid_body"
    body = {"reason": "r", "filter": {}}
    assert shop.post("/v1/dead-letters/retry", body).code == "idempotency_key_invalid"


def test_an_unknown_action_is_refused_by_the_engine_too(failed: Run) -> None:
    with pytest.raises(InvalidRequest):
        engine.repair_run(failed.id, action="explode", reason="r", actor="me", token="t")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"action": "resume", "scope": "[3]"}, "/scope"),
        ({"action": "skip_step", "scope": "[3]"}, "/scope"),
        ({"action": "retry_step", "effect_key": "pay:1"}, "/effect_key"),
        ({"action": "retry_step", "from_sequence": 3}, "/from_sequence"),
        ({"action": "resume", "with_dependents": True}, "/with_dependents"),
        ({"action": "settle_effect", "outcome": "not_applied", "output": {}}, "/output"),
    ],
)
def test_a_field_that_the_action_would_not_look_at_is_refused(
    shop: Caller, failed: Run, body: dict[str, Any], pointer: str
) -> None:
    answer = ask(shop, failed, **body)

    assert (answer.status, answer.pointers) == (422, [pointer])
    assert not Repair.objects.exists()


def test_letters_that_are_refused_do_not_bar_the_way_of_those_behind(
    shop: Caller, carried: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "MOST_AT_ONCE", 2)
    broken = {"a": {**FLAKY, "service": "shop"}, "b": SAY}
    published(document("lax", on_error="continue", steps=broken))
    published(document("flaky", steps=broken))
    for n in range(2):  # what has been gone over cannot be retried
        probes.forget()
        run = carried(lambda n=n: shop.started("lax", key=f"l-{n}"))
        run.refresh_from_db()
        assert run.state == "completed"
    probes.forget()
    fails(shop, carried, "f-1")
    body: dict[str, Any] = {"filter": {"service": "shop"}, "reason": "r"}

    first = shop.post("/v1/dead-letters/retry", body, key="1").body
    assert [each["status"] for each in first["results"]] == ["refused", "refused"]
    again = shop.post("/v1/dead-letters/retry", {**body, "after": first["next"]}, key="1").body

    assert [each["status"] for each in again["results"]] == ["retried"]
    assert again["next"] is None


# -- what a person settles, and the ledger ---------------------------------------------------------


def undo_fails(carried: Any, shop: Caller) -> Run:
    never = {"tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
    pay = {"type": "tool", "tool": "probe.say", "input": {"value": 1}, "effect": {"key": "pay:1"}}
    broken = {**FLAKY, "needs": ["pay"], "service": "shop"}
    published(document("order", steps={"pay": {**pay, "compensate": never}, "a": broken}))
    return fails(shop, carried, "k-1", "order")


def test_the_saga_ledger_says_what_could_not_be_undone(shop: Caller, carried: Any) -> None:
    run = undo_fails(carried, shop)

    answer = shop.get(f"/v1/workflows/{run.id}/saga").body

    assert (answer["state"], answer["compensation"]) == ("failed", "partial")
    (line,) = answer["results"]
    assert (line["step"], line["state"], line["turn"]) == ("pay", "not_undone", 1)
    assert (line["effect_key"], line["why"]) == ("pay:1", "never")
    assert line["task"] == DeadLetter.objects.get(reason="compensation").pk
    assert Caller("other").get(f"/v1/workflows/{run.id}/saga").status == 404


def test_a_compensation_that_gave_up_is_retried_from_its_dead_letter(
    shop: Caller, carried: Any
) -> None:
    run = undo_fails(carried, shop)
    wanted = {"filter": {"reason": "compensation"}, "reason": "the shop is up again"}

    done = carried(lambda: shop.post("/v1/dead-letters/retry", wanted, key="bulk"))

    assert [each["status"] for each in done.body["results"]] == ["retried"]
    shown = shop.get(f"/v1/workflows/{run.id}").body
    assert (shown["state"], shown["compensation"]) == ("failed", "full")


def test_a_person_settles_a_dead_letter_by_hand(shop: Caller, carried: Any) -> None:
    undo_fails(carried, shop)
    (letter,) = shop.get("/v1/dead-letters", reason="compensation").body["results"]
    path = f"/v1/dead-letters/{letter['id']}/settle"

    assert shop.post(path, {"reason": "paid back"}).code == "idempotency_key_invalid"
    assert shop.post(path, {"reason": ""}, key="s").code == "invalid_body"
    assert Caller("other").post(path, {"reason": "x"}, key="s").status == 404
    done = shop.post(path, {"reason": "paid back"}, key="s")

    assert (done.status, done.body["settlement"]) == (200, "paid back")
    assert shop.get("/v1/dead-letters", reason="compensation").body["results"] == []
    assert shop.get("/v1/dead-letters", state="settled").body["results"] == [done.body]
    assert shop.post(path, {"reason": "paid back"}, key="s").status == 200
    late = shop.post(path, {"reason": "me too"}, key="s2")
    assert (late.status, late.code) == (409, "letter_closed")


def test_dead_letters_are_narrowed_by_region(shop: Caller, failed: Run) -> None:
    DeadLetter.objects.filter(run=failed).update(region="eu")

    assert len(shop.get("/v1/dead-letters", region="eu").body["results"]) == 1
    assert shop.get("/v1/dead-letters", region="us").body["results"] == []
    dry = {"filter": {"region": "eu"}, "reason": "r", "dry_run": True}
    assert shop.post("/v1/dead-letters/retry", dry).body["count"] == 1
