"""Looking at runs: one, many, their history, their items."""

from __future__ import annotations

import pytest

from orchestrator import engine
from orchestrator.models import Run
from tests.desk.documents import document, parent_of
from tests.desk.world import Caller, published
from workflows_app.api.answers import EventPage, RunAnswer, RunPage, StepPage

pytestmark = pytest.mark.django_db


LOOP = {
    "collect": {
        "type": "wait",
        "for_each": {"items": "${{ input.pages }}", "as": "page"},
        "signal": "page_read",
    },
    "after": {"type": "wait", "needs": ["collect"], "for": "1h"},
}


def test_a_waiting_run_says_for_what_and_until_when(shop: Caller, carried) -> None:
    run = carried(lambda: shop.started(context={"a": 1}))
    answer = shop.get(f"/v1/workflows/{run.id}")

    assert answer.status == 200
    body = answer.body
    RunAnswer.model_validate(body)
    assert (body["state"], body["waiting_for"], body["label"]) == (
        "waiting",
        "signal",
        "Waits for the shop",
    )
    assert body["why"].startswith("Step hear: waiting for signal go")
    assert "UTC (in 2 h)" in body["why"]
    assert body["budget"] == {
        "cost_usd": 2.0,
        "remaining_usd": 2.0,
        "duration_s": 600.0,
        "remaining_s": pytest.approx(600, abs=5),
        "on_exceeded": "pause",
    }
    (step,) = body["steps"]
    assert (step["key"], step["scope"], step["state"], step["attempt"]) == (
        "hear",
        "",
        "waiting",
        1,
    )
    assert step["waiting_until"] is not None
    assert body["progress"]["waiting"]["count"] == 1
    assert body["context"] == {"a": 1}


def test_a_finished_run_shows_output_outcome_and_summary(shop: Caller, carried) -> None:
    run = carried(shop.started)
    carried(
        lambda: engine.send_signal(
            run.id, name="go", signal_id="s", payload={"ok": True}, actor="a"
        )
    )
    body = shop.get(f"/v1/workflows/{run.id}").body

    RunAnswer.model_validate(body)
    assert (body["state"], body["outcome"]) == ("completed", "succeeded")
    assert body["output"] == {"hear": {"ok": True}}
    assert body["summary"]["route"] == ["hear"]
    assert body["why"].startswith("Completed after ")
    assert body["timestamps"]["finished_at"] is not None


def test_steps_that_never_began_are_shown_too(shop: Caller, carried) -> None:
    steps = {
        "hear": {"type": "wait", "signal": "go"},
        "never": {"type": "wait", "needs": ["hear"], "for": "1h"},
    }
    published(document("two_steps", steps=steps))
    run = carried(lambda: shop.started("two_steps"))
    body = shop.get(f"/v1/workflows/{run.id}").body

    assert [(s["key"], s["state"]) for s in body["steps"]] == [
        ("hear", "waiting"),
        ("never", "blocked"),
    ]
    assert body["progress"]["blocked"] == {
        "count": 1,
        "earliest_start": None,
        "latest_end": None,
    }


def test_few_items_are_listed_with_the_run(shop: Caller, carried) -> None:
    published(document("loop", steps=LOOP, input={"type": "object"}))
    run = carried(lambda: shop.started("loop", input={"pages": [1, 2, 3]}))
    body = shop.get(f"/v1/workflows/{run.id}").body

    RunAnswer.model_validate(body)
    assert [s["key"] + s["scope"] for s in body["steps"]] == [
        "collect",
        "collect[0]",
        "collect[1]",
        "collect[2]",
        "after",
    ]
    assert body["steps"][0]["items"] == {"waiting": 3}


def test_a_number_too_large_for_an_integer_comes_back_as_it_was_sent(
    shop: Caller,
) -> None:
    """The database spells 1e22 as 23 digits, which no start takes as an integer."""
    sent = {"order_id": "A-1", "rate": 1e22, "rates": [-1.7e308, 2**53 + 1]}
    run = shop.started(input=sent)
    answer = shop.get(f"/v1/workflows/{run.id}")

    assert answer.body["input"] == sent
    assert "1e+22" in answer.text
    assert str(2**53 + 1) in answer.text


def test_many_items_are_counted_and_paged(shop: Caller, carried) -> None:
    published(document("loop", steps=LOOP, input={"type": "object"}))
    run = carried(lambda: shop.started("loop", input={"pages": list(range(105))}))
    body = shop.get(f"/v1/workflows/{run.id}").body

    assert [s["key"] for s in body["steps"]] == ["collect", "after"]
    assert sum(body["steps"][0]["items"].values()) == 105

    url = f"/v1/workflows/{run.id}/steps"
    seen, query = [], {"parent": "collect", "limit": 40}
    while True:
        page = shop.get(url, **query).body
        StepPage.model_validate(page)
        seen += [item["scope"] for item in page["results"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == [f"[{n}]" for n in range(105)]


def test_items_of_a_step_without_for_each_are_refused(shop: Caller) -> None:
    run = shop.started()

    assert shop.get(f"/v1/workflows/{run.id}/steps", parent="hear").code == "invalid_query"
    assert shop.get(f"/v1/workflows/{run.id}/steps").code == "invalid_query"


def test_a_parent_shows_its_child_and_the_child_its_parent(
    shop: Caller, django_capture_on_commit_callbacks, carried
) -> None:
    published(parent_of("order_check"))
    run = carried(lambda: shop.started("parent"))
    child = Run.objects.get(parent=run)
    body = shop.get(f"/v1/workflows/{run.id}").body

    RunAnswer.model_validate(body)
    assert body["steps"][0]["child_instance_id"] == str(child.id)
    assert str(child.id) in body["why"]
    shown = shop.get(f"/v1/workflows/{child.id}").body
    assert shown["parent_instance_id"] == str(run.id)


def test_a_picture_takes_a_bounded_number_of_queries(
    shop: Caller, carried, django_assert_max_num_queries
) -> None:
    published(document("loop", steps=LOOP, input={"type": "object"}))
    run = carried(lambda: shop.started("loop", input={"pages": list(range(60))}))
    shop.get(f"/v1/workflows/{run.id}")

    with django_assert_max_num_queries(10):
        shop.get(f"/v1/workflows/{run.id}")


@pytest.mark.parametrize("instance", ["nothing", "0192f0c0-0000-7000-8000-000000000000"])
@pytest.mark.parametrize("tail", ["", "/history", "/steps"])
def test_a_run_that_does_not_exist_is_404(shop: Caller, instance: str, tail: str) -> None:
    answer = shop.get(f"/v1/workflows/{instance}{tail}")

    assert (answer.status, answer.code) == (404, "not_found")


def test_the_list_is_newest_first_and_pages_without_gaps(shop: Caller) -> None:
    ids = [str(shop.started(key=f"k{n}").id) for n in range(5)]
    first = shop.get("/v1/workflows", limit=2).body
    RunPage.model_validate(first)
    second = shop.get("/v1/workflows", limit=2, cursor=first["next"]).body
    third = shop.get("/v1/workflows", limit=2, cursor=second["next"]).body

    found = [r["instance_id"] for page in (first, second, third) for r in page["results"]]
    assert found == ids[::-1]
    assert third["next"] is None


def test_the_list_is_narrowed_by_each_filter(shop: Caller, carried) -> None:
    published(document("other"))
    plain = str(carried(lambda: shop.started(key="a", correlation_id="c-1")).id)
    other = str(carried(lambda: shop.started("other", key="b")).id)
    run = Run.objects.get(pk=other)
    engine.cancel_run(run.id, actor="a", reason="")

    def listed(**query) -> list[str]:
        return [r["instance_id"] for r in shop.get("/v1/workflows", **query).body["results"]]

    assert listed(state="waiting") == [plain]
    assert listed(state=["waiting", "cancelled"]) == [other, plain]
    assert listed(workflow="other") == [other]
    assert listed(correlation_id="c-1") == [plain]
    assert listed(started_after="2020-01-01T00:00:00Z") == [other, plain]
    assert listed(started_after=run.created_at.isoformat()) == []
    assert listed(workflow="nothing") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "asleep"),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "many"),
        ("cursor", "!!!"),
        ("cursor", "AAAA"),
        ("cursor", "é"),
        ("started_after", "yesterday"),
        ("started_after", "9999-12-31T23:59:59-23:59"),
        ("started_after", "0001-01-01T00:00:00+23:59"),
        ("workflow", "a\x00b"),
        ("correlation_id", "\x00"),
    ],
)
def test_a_query_that_means_nothing_is_422(shop: Caller, name: str, value: str) -> None:
    answer = shop.get("/v1/workflows", **{name: value})

    assert (answer.status, answer.code) == (422, "invalid_query")
    assert answer.pointers == [f"/{name}"]


def test_the_history_is_read_by_sequence(shop: Caller, carried) -> None:
    run = carried(shop.started)
    whole = shop.get(f"/v1/workflows/{run.id}/history").body
    EventPage.model_validate(whole)
    sequences = [event["sequence"] for event in whole["results"]]
    assert sequences == list(range(1, len(sequences) + 1))
    assert whole["results"][0]["type"] == "run.started"
    assert whole["next"] is None

    first = shop.get(f"/v1/workflows/{run.id}/history", limit=1).body
    assert first["next"] == 1
    rest = shop.get(f"/v1/workflows/{run.id}/history", after=1).body
    assert [event["sequence"] for event in rest["results"]] == sequences[1:]


@pytest.mark.parametrize("after", ["x", "-", "9" * 30])
def test_a_sequence_that_is_none_is_422(shop: Caller, after: str) -> None:
    run = shop.started()

    assert shop.get(f"/v1/workflows/{run.id}/history", after=after).code == "invalid_query"
