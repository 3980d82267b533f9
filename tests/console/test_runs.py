"""The console's run pages: found fast, explained, and steered by POST with a reason only."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from orchestrator import engine
from orchestrator.models import Event, Run
from orchestrator.models.alert_rows import close_alert, open_alert
from tests.desk.documents import document
from tests.desk.world import Caller, published

pytestmark = pytest.mark.django_db


def page(client: Client, name: str, *args: object, **query: str) -> str:
    answer = client.get(reverse(f"admin:{name}", args=args), query)
    assert answer.status_code == 200
    return answer.content.decode()


def listed(client: Client, **query: str) -> str:
    return page(client, "orchestrator_run_changelist", **query)


def test_the_first_page_counts_what_matters(boss: Client, waiting: Run) -> None:
    text = page(boss, "index")

    assert "<b>1</b>waiting in all" in text
    assert "<b>0</b>waiting for a person" in text
    assert "Durable workflow orchestrator" in text


def test_the_first_page_counts_reviews_and_open_alerts(boss: Client, waiting: Run) -> None:
    Run.objects.filter(pk=waiting.pk).update(waiting_for="review")
    for key in "ab":
        open_alert("in_doubt", key, title="an effect is in doubt", detail={})
    close_alert("in_doubt", "b")

    text = page(boss, "index")

    assert "<b>1</b>waiting for a review" in text
    assert "<b>1</b>open alerts" in text
    assert str(waiting.id) in listed(boss, state="review")


def test_who_may_not_see_alerts_is_told_of_none(waiting: Run) -> None:
    user = User.objects.create_user("looks", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    client = Client()
    client.force_login(user)

    text = page(client, "index")

    assert "waiting in all" in text
    assert "open alerts" not in text


def test_runs_are_narrowed_by_state_workflow_and_tenant(
    boss: Client, shop: Caller, waiting: Run, carried
) -> None:
    published(document("other"))
    other = carried(lambda: shop.started("other", key="o"))
    engine.cancel_run(other.id, actor="a", reason="r")

    assert str(other.id) not in listed(boss, state="open")
    assert str(waiting.id) in listed(boss, state="open")
    assert str(waiting.id) not in listed(boss, state="moving")
    assert str(waiting.id) not in listed(boss, state="person")
    assert str(other.id) in listed(boss, state="cancelled")
    assert str(waiting.id) not in listed(boss, workflow="other")
    assert str(waiting.id) in listed(boss, tenant="acme")


def test_a_run_is_found_by_its_id_and_by_its_correlation_id(
    boss: Client, shop: Caller, waiting: Run
) -> None:
    other = shop.started(key="o", correlation_id="order 77")

    assert str(other.id) not in listed(boss, q=str(waiting.id))
    assert str(waiting.id) in listed(boss, q=str(waiting.id))
    assert str(other.id) in listed(boss, q="order 77")
    assert str(other.id) not in listed(boss, q="nothing")


def test_the_list_never_counts_everything_nor_reads_any_data(
    boss: Client, waiting: Run, django_assert_max_num_queries
) -> None:
    with django_assert_max_num_queries(12) as seen:
        listed(boss)

    on_runs = [q["sql"] for q in seen.captured_queries if 'FROM "orchestrator_run"' in q["sql"]]
    assert on_runs
    assert [sql for sql in on_runs if "COUNT(" in sql and "LIMIT 10000" not in sql] == []
    assert [sql for sql in on_runs if '"orchestrator_run"."compact"' in sql] == []


def test_the_page_of_a_run_says_why_and_shows_everything(boss: Client, waiting: Run) -> None:
    text = page(boss, "orchestrator_run_change", waiting.id)

    assert "Step hear: waiting for signal go" in text
    assert "Waits for the shop" in text
    assert "run.started" in text
    assert "A-1" in text
    for verb in ("pause", "cancel"):
        assert reverse(f"admin:orchestrator_run_{verb}", args=[waiting.id]) in text
    assert reverse("admin:orchestrator_run_resume", args=[waiting.id]) not in text


def test_a_step_and_the_whole_history_have_pages(boss: Client, waiting: Run) -> None:
    step = waiting.steps.get()

    assert (
        "waiting for signal go" in page(boss, "orchestrator_run_step", waiting.id, step.id).lower()
    )
    assert "run.started" in page(boss, "orchestrator_run_events", waiting.id)
    assert "run.started" not in page(boss, "orchestrator_run_events", waiting.id, after="1")


def test_a_run_that_does_not_exist_leads_back_to_the_console(boss: Client) -> None:
    for given in ("0192f0c0-0000-7000-8000-000000000000", "nothing"):
        answer = boss.get(reverse("admin:orchestrator_run_change", args=[given]))
        assert answer.status_code == 302


# -- steering --------------------------------------------------------------------------------------


def act(client: Client, run: Run, verb: str, **data: str):
    return client.post(reverse(f"admin:orchestrator_run_{verb}", args=[run.id]), data, follow=True)


def test_a_get_asks_and_changes_nothing(boss: Client, waiting: Run) -> None:
    answer = boss.get(reverse("admin:orchestrator_run_cancel", args=[waiting.id]))

    assert answer.status_code == 200
    assert b"This cannot be taken back" in answer.content
    assert Run.objects.get(pk=waiting.id).state == "waiting"


def test_a_post_with_a_reason_acts_and_is_recorded(boss: Client, waiting: Run) -> None:
    answer = act(boss, waiting, "pause", reason="month end")
    assert "is paused" in answer.content.decode()
    event = Event.objects.filter(run_id=waiting.id, type="run.paused").get()
    assert (event.actor, event.payload["reason"]) == ("user:boss", "month end")
    assert LogEntry.objects.get().change_message == "Pause: month end"

    act(boss, waiting, "resume", reason="over")
    assert Run.objects.get(pk=waiting.id).state == "waiting"
    act(boss, waiting, "cancel", reason="twice")
    assert Run.objects.get(pk=waiting.id).state == "cancelled"


def test_without_a_reason_nothing_happens(boss: Client, waiting: Run) -> None:
    answer = act(boss, waiting, "cancel", reason="  ")

    assert b"This field is required" in answer.content
    assert Run.objects.get(pk=waiting.id).state == "waiting"


def test_what_the_state_forbids_is_said(boss: Client, waiting: Run) -> None:
    engine.cancel_run(waiting.id, actor="a", reason="r")
    answer = act(boss, waiting, "pause", reason="r")

    assert "it cannot be paused" in answer.content.decode()


def test_looking_is_not_steering(waiting: Run) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_run"))
    client = Client()
    client.force_login(viewer)

    text = page(client, "orchestrator_run_change", waiting.id)
    assert reverse("admin:orchestrator_run_cancel", args=[waiting.id]) not in text
    for verb in ("pause", "resume", "cancel"):
        assert act(client, waiting, verb, reason="r").status_code == 403
    assert Run.objects.get(pk=waiting.id).state == "waiting"


def test_staff_without_permission_see_no_runs(waiting: Run) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    step = waiting.steps.get()

    assert "waiting in all" not in page(client, "index")
    addresses = [
        reverse("admin:orchestrator_run_changelist"),
        reverse("admin:orchestrator_run_change", args=[waiting.id]),
        reverse("admin:orchestrator_run_events", args=[waiting.id]),
        reverse("admin:orchestrator_run_step", args=[waiting.id, step.id]),
    ]
    assert [client.get(address).status_code for address in addresses] == [403] * 4


def test_what_a_run_says_is_shown_never_executed(boss: Client, shop: Caller, carried) -> None:
    bad = "<script>alert(1)</script>"
    run = carried(lambda: shop.started(input={"order_id": bad}, correlation_id=bad, context=bad))
    engine.cancel_run(run.id, actor=bad, reason=bad)
    for text in (
        page(boss, "orchestrator_run_change", run.id),
        page(boss, "orchestrator_run_events", run.id),
        listed(boss),
    ):
        assert bad not in text
