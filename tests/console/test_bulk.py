"""Dead letters retried by the many from the console: counted, confirmed, in portions, once each."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from orchestrator import engine
from orchestrator.admin import bulk_retries
from orchestrator.models import BulkItem, BulkRetry, DeadLetter, Repair, Run
from tests.desk.documents import document
from tests.desk.world import Caller, published
from tests.engine import probes

pytestmark = pytest.mark.django_db

FLAKY = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
RETRY = "admin:orchestrator_deadletter_retry"


@pytest.fixture(autouse=True)
def _clean() -> None:
    probes.forget()


@pytest.fixture
def failed(shop: Caller, carried: Any) -> list[Run]:
    """Three runs that gave up at the service ``crm``, and one at ``mail``."""
    published(document("crm", steps={"tell": {**FLAKY, "service": "crm"}}))
    published(document("mail", steps={"send": {**FLAKY, "service": "mail"}}))
    runs = []
    for name, key in (("crm", "1"), ("crm", "2"), ("crm", "3"), ("mail", "4")):
        probes.forget()
        runs.append(carried(lambda name=name, key=key: shop.started(name, key=key)))
    return runs


def listed() -> str:
    return reverse("admin:orchestrator_deadletter_changelist")


def hidden(page: HttpResponse) -> dict[str, str]:
    text = page.content.decode()
    form = text[text.index('<form method="post" action="/admin/orchestrator/deadletter/retry/') :]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def begun(client: Client, **choice: str) -> BulkRetry:
    """A bulk retry of what fits, confirmed and not worked on yet."""
    page = client.get(reverse(RETRY), choice)
    assert page.status_code == 200
    data = {**choice, **hidden(page), "reason": "it is up again", "act": "yes"}
    answer = client.post(reverse(RETRY), data)
    bulk = BulkRetry.objects.latest("created_at")
    assert answer.headers["Location"] == progress_address(bulk)
    return bulk


def progress_address(bulk: BulkRetry) -> str:
    return reverse("admin:orchestrator_bulkretry_change", args=[bulk.pk])


def work(client: Client, bulk: BulkRetry) -> str:
    address = reverse("admin:orchestrator_bulkretry_work", args=[bulk.pk])
    return client.post(address, follow=True).content.decode()


def states(runs: list[Run]) -> list[str]:
    return [Run.objects.get(pk=run.pk).state for run in runs]


def test_the_list_leads_to_all_that_fit_its_filter(boss: Client, failed: list[Run]) -> None:
    text = boss.get(listed(), {"service": "crm", "reason": "permanent"}).content.decode()
    assert f"{reverse(RETRY)}?service=crm&amp;gave_up=permanent" in text
    assert reverse(RETRY) in boss.get(listed(), {"standing": "open"}).content.decode()
    for other in ("person", "retried", "settled"):
        assert reverse(RETRY) not in boss.get(listed(), {"standing": other}).content.decode()


def test_what_fits_is_counted_and_nothing_happens(boss: Client, failed: list[Run]) -> None:
    text = boss.get(reverse(RETRY), {"service": "crm"}).content.decode()

    assert "3 open and fitting" in text
    assert "Retry these 3" in text
    assert "0 open and fitting" in boss.get(reverse(RETRY), {"tenant": "b"}).content.decode()
    assert not BulkRetry.objects.exists()
    assert DeadLetter.objects.filter(retried_at=None).count() == 4


def test_all_that_fit_are_retried_with_one_reason_each_by_its_own_repair(
    boss: Client, failed: list[Run], carried: Any
) -> None:
    bulk = begun(boss, service="crm")
    assert states(failed) == ["failed"] * 4
    text = carried(lambda: work(boss, bulk))

    assert "<b>3</b> of 3 handled" in text
    assert text.count("state-completed") == 3
    assert states(failed) == ["completed"] * 3 + ["failed"]
    assert {(r.actor, r.role, r.reason) for r in Repair.objects.all()} == {
        ("user:boss", "superuser", "it is up again")
    }
    assert LogEntry.objects.get().change_message == "Retry 3 dead letters: it is up again"


def test_the_picked_rows_are_retried_and_no_others(
    boss: Client, failed: list[Run], carried: Any
) -> None:
    picked = [str(pk) for pk in DeadLetter.objects.order_by("pk").values_list("pk", flat=True)[1:3]]
    data = {"action": "retry_chosen", "_selected_action": picked}
    asked = boss.post(listed(), data, follow=True)
    assert "2 chosen and open" in asked.content.decode()
    bulk = begun(boss, ids=",".join(picked))
    carried(lambda: work(boss, bulk))

    assert states(failed) == ["failed", "completed", "completed", "failed"]


def test_one_letter_is_retried_from_its_own_page(
    boss: Client, failed: list[Run], carried: Any
) -> None:
    letter = DeadLetter.objects.get(service="mail")
    own = reverse("admin:orchestrator_deadletter_change", args=[letter.pk])
    assert f"{reverse(RETRY)}?ids={letter.pk}" in boss.get(own).content.decode()
    carried(lambda: work(boss, begun(boss, ids=str(letter.pk))))

    assert f"{reverse(RETRY)}?ids={letter.pk}" not in boss.get(own).content.decode()
    assert states(failed) == ["failed"] * 3 + ["completed"]


def test_picking_across_pages_leads_to_the_filter(boss: Client, failed: list[Run]) -> None:
    pk = str(DeadLetter.objects.latest("pk").pk)
    data = {"action": "retry_chosen", "_selected_action": [pk], "select_across": "1"}
    answer = boss.post(f"{listed()}?service=crm", data)
    assert answer.headers["Location"] == f"{reverse(RETRY)}?service=crm"


def test_picking_only_closed_ones_says_so(boss: Client, failed: list[Run], carried: Any) -> None:
    carried(lambda: work(boss, begun(boss, service="mail")))
    pk = str(DeadLetter.objects.get(service="mail").pk)
    data = {"action": "retry_chosen", "_selected_action": [pk]}
    assert b"None of the chosen is open" in boss.post(listed(), data, follow=True).content


def test_it_is_worked_off_in_portions_and_can_be_taken_up_by_another(
    boss: Client, failed: list[Run], carried: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_retries, "PORTION", 2)
    bulk = begun(boss)
    first = carried(lambda: work(boss, bulk))
    assert "<b>2</b> of 4 handled" in first
    assert "Go on" in first
    overview = boss.get(reverse("admin:orchestrator_bulkretry_changelist")).content.decode()
    assert "left unfinished" in overview

    other = operator("ann")
    last = carried(lambda: work(other, bulk))
    assert "<b>4</b> of 4 handled" in last
    assert 'id="bulk-form"' not in last
    assert states(failed) == ["completed"] * 4
    assert sorted(Repair.objects.values_list("actor", flat=True)) == [
        *["user:ann"] * 2,
        *["user:boss"] * 2,
    ]


def operator(name: str, *rights: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    named = rights or ("view_run", "change_run", "view_bulkretry", "view_deadletter")
    user.user_permissions.add(*Permission.objects.filter(codename__in=named))
    client = Client()
    client.force_login(user)
    return client


def test_a_portion_or_a_choice_sent_twice_does_nothing_more(
    boss: Client, failed: list[Run], carried: Any
) -> None:
    page = boss.get(reverse(RETRY), {"service": "crm"})
    data = {"service": "crm", **hidden(page), "reason": "again", "act": "yes"}
    boss.post(reverse(RETRY), data)
    boss.post(reverse(RETRY), data)
    bulk = BulkRetry.objects.get()
    assert bulk.items.count() == 3

    carried(lambda: work(boss, bulk))
    carried(lambda: work(boss, bulk))
    assert Repair.objects.count() == 3
    assert LogEntry.objects.count() == 1


def test_what_came_after_the_count_is_not_retried(
    boss: Client, shop: Caller, failed: list[Run], carried: Any
) -> None:
    page = boss.get(reverse(RETRY), {"service": "crm"})
    probes.forget()
    carried(lambda: shop.started("crm", key="late"))
    boss.post(reverse(RETRY), {"service": "crm", **hidden(page), "reason": "x", "act": "yes"})
    assert BulkRetry.objects.get().total == 3


def test_another_choice_than_the_counted_one_is_counted_first(
    boss: Client, failed: list[Run]
) -> None:
    data = hidden(boss.get(reverse(RETRY), {"service": "crm"}))
    answer = boss.post(reverse(RETRY), {**data, "service": "", "reason": "all", "act": "yes"})

    assert answer.status_code == 409
    assert "Nothing was done yet" in answer.content.decode()
    assert "4 open and fitting" in answer.content.decode()
    assert "all</textarea>" in answer.content.decode()
    assert not BulkRetry.objects.exists()


def test_each_refusal_is_told_with_its_code_and_the_others_go_on(
    boss: Client, failed: list[Run], carried: Any
) -> None:
    bulk = begun(boss)
    moved, settled, along, _ = DeadLetter.objects.order_by("pk")
    who = {"actor": "user:ann", "role": "", "token": "t"}
    carried(lambda: engine.settle_letter(settled.pk, tenant="acme", reason="by hand", **who))
    Run.objects.filter(pk=moved.run_id).update(version=99)
    carried(
        lambda: engine.repair_run(
            along.run_id, action="retry_step", step="tell", reason="me first", **who
        )
    )
    text = carried(lambda: work(boss, bulk))

    assert "<b>2</b> retried, <b>2</b> refused" in text
    results = list(BulkItem.objects.order_by("pk").values_list("status", "code"))
    assert results == [
        ("refused", "stale_version"),
        ("refused", "letter_closed"),
        ("retried", ""),
        ("retried", ""),
    ]
    for said in ("stale_version", "has moved on since you looked at it", "settled it by hand"):
        assert said in text
    narrowed = boss.get(progress_address(bulk), {"show": "refused"}).content.decode()
    assert "letter_closed" in narrowed
    assert "state-completed" not in narrowed


def test_it_begins_by_itself_once_and_only_where_it_was_confirmed(
    boss: Client, failed: list[Run]
) -> None:
    bulk = begun(boss)
    assert "data-begun" not in operator("ann").get(progress_address(bulk)).content.decode()
    assert "data-begun" in boss.get(progress_address(bulk)).content.decode()
    assert "data-begun" not in boss.get(progress_address(bulk)).content.decode()
    assert states(failed) == ["failed"] * 4


def test_whoever_may_only_look_retries_nothing(boss: Client, failed: list[Run]) -> None:
    bulk = begun(boss)
    guest = operator("guest", "view_deadletter", "view_bulkretry", "view_run")
    text = guest.get(listed()).content.decode()

    assert "retry_chosen" not in text
    assert reverse(RETRY) not in text
    assert guest.get(reverse(RETRY)).status_code == 403
    assert 'id="bulk-form"' not in guest.get(progress_address(bulk)).content.decode()
    work_address = reverse("admin:orchestrator_bulkretry_work", args=[bulk.pk])
    assert guest.post(work_address).status_code == 403
    assert boss.get(work_address).status_code == 405
    assert states(failed) == ["failed"] * 4


@pytest.mark.parametrize(
    "choice",
    [{"ids": "x"}, {"ids": "9" * 400}, {"ids": ",".join(["1"] * 2000)}, {"gave_up": "odd"}],
)
def test_a_choice_that_no_page_makes_is_no_failure_of_the_server(
    boss: Client, failed: list[Run], choice: dict[str, str]
) -> None:
    assert boss.get(reverse(RETRY), choice).status_code == 200
    answer = boss.post(reverse(RETRY), {**choice, "reason": "r", "act": "y", "upto": "9" * 99})
    assert answer.status_code in (200, 409)
    assert not BulkRetry.objects.exists()


def test_the_pages_work_by_keyboard_and_without_scripts_of_their_own(
    boss: Client, failed: list[Run]
) -> None:
    asked = boss.get(reverse(RETRY)).content.decode()
    for name in ("tenant", "workflow", "service", "gave_up", "reason"):
        assert f'<label for="id_{name}">' in asked
    page = boss.get(progress_address(begun(boss))).content.decode()
    assert 'role="status"' in page
    assert 'aria-labelledby="bulk-status"' in page
    assert '<input type="submit"' in page
    for text in (asked, page):
        assert re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", text) is None
        assert "onclick" not in text
