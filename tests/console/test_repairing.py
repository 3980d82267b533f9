"""Operators repair runs from the console: shown first, done once, refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from orchestrator.authoring import Transient
from orchestrator.models import Effect, Event, Repair, Run
from tests.desk.documents import document
from tests.desk.world import Caller, published
from tests.engine import probes

pytestmark = pytest.mark.django_db

FLAKY = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
SAY = {"type": "tool", "tool": "probe.say", "input": {"value": {"external_ref": "R-1"}}}
PAY = {**SAY, "effect": {"key": "pay:1"}}
UNDO = {"compensate": {"tool": "probe.say", "input": {"value": 0}, "effect": {"key": "back:1"}}}


@pytest.fixture(autouse=True)
def _clean() -> None:
    probes.forget()


@pytest.fixture
def run_of(shop: Caller, carried: Any) -> Callable[..., Run]:
    """A run of these steps, as far as it comes by itself."""

    def started(**steps: Any) -> Run:
        published(document("mend", steps=steps))
        run = carried(lambda: shop.started("mend", key="k"))
        return Run.objects.get(pk=run.pk)

    return started


@pytest.fixture
def failed(run_of: Callable[..., Run]) -> Run:
    """A run that paid, and failed to tell."""
    run = run_of(pay=PAY, tell={**FLAKY, "needs": ["pay"]})
    assert run.state == "failed"
    return run


@pytest.fixture
def ann() -> Client:
    """An operator in a group, who may steer but is no superuser."""
    user = User.objects.create_user("ann", is_staff=True)
    names = ("view_run", "change_run")
    user.user_permissions.add(*Permission.objects.filter(codename__in=names))
    user.groups.add(Group.objects.create(name="night shift"))
    client = Client()
    client.force_login(user)
    return client


def address(run: Run, word: str, **target: str) -> str:
    page = reverse("admin:orchestrator_run_repair", args=[run.id, word])
    return f"{page}?{urlencode(target)}" if target else page


def hidden(page: HttpResponse) -> dict[str, str]:
    """What the page would send along, as a browser reads it."""
    text = page.content.decode()
    form = text[text.index('<form method="post" action="/admin/orchestrator/run/') :]
    inputs = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
    return {name: value.replace("&quot;", '"') for name, value in inputs}


def looked(client: Client, run: Run, word: str, **target: str) -> dict[str, str]:
    page = client.get(address(run, word, **target))
    assert page.status_code == 200, page.content.decode()
    return hidden(page)


def sent(client: Client, run: Run, word: str, data: dict[str, str], **more: str) -> HttpResponse:
    given = {"reason": "the line is up again", "act": "yes", **data, **more}
    return client.post(address(run, word), given, follow=True)


def run_page(client: Client, run: Run) -> str:
    return client.get(reverse("admin:orchestrator_run_change", args=[run.id])).content.decode()


def step_page(client: Client, run: Run, key: str) -> str:
    step = run.steps.get(key=key, scope="")
    page = client.get(reverse("admin:orchestrator_run_step", args=[run.id, step.id]))
    return page.content.decode()


# -- what is offered -------------------------------------------------------------------------------


def test_a_failed_step_offers_to_be_retried_on_its_row_and_its_page(
    boss: Client, failed: Run
) -> None:
    retry = address(failed, "retry-step", step="tell")

    for text in (run_page(boss, failed), step_page(boss, failed, "tell")):
        assert retry in text
        assert address(failed, "retry-step", step="pay") not in text
    assert address(failed, "resume") in run_page(boss, failed)
    assert address(failed, "resume", step="tell") in step_page(boss, failed, "tell")


def test_a_finished_step_offers_to_be_undone_once_the_run_is_over(
    boss: Client, run_of: Callable[..., Run]
) -> None:
    run = run_of(pay={**PAY, **UNDO}, tell={**SAY, "needs": ["pay"]})
    text = run_page(boss, run)

    assert address(run, "compensate-step", step="pay") in text
    assert address(run, "compensate-step", step="tell") not in text


def test_an_optional_step_that_waits_offers_to_be_skipped(
    boss: Client, run_of: Callable[..., Run], carried: Any
) -> None:
    run = run_of(hear={"type": "wait", "signal": "go", "optional": True}, say={**SAY})
    assert address(run, "skip-step", step="hear") in run_page(boss, run)

    carried(lambda: sent(boss, run, "skip-step", looked(boss, run, "skip-step", step="hear")))

    run.refresh_from_db()
    assert run.state == "completed"
    assert run.steps.get(key="hear").state == "skipped"


def test_nothing_is_offered_where_nothing_makes_sense(boss: Client, waiting: Run) -> None:
    assert "button offer" not in run_page(boss, waiting)


def test_whoever_may_only_look_is_offered_nothing_and_refused(failed: Run) -> None:
    guest = User.objects.create_user("guest", is_staff=True)
    guest.user_permissions.add(Permission.objects.get(codename="view_run"))
    client = Client()
    client.force_login(guest)

    assert "button offer" not in run_page(client, failed)
    assert client.get(address(failed, "retry-step", step="tell")).status_code == 403
    assert sent(client, failed, "retry-step", {"step": "tell"}).status_code == 403
    assert not Repair.objects.exists()


# -- look, then act --------------------------------------------------------------------------------


def test_a_look_says_what_would_happen_and_changes_nothing(boss: Client, failed: Run) -> None:
    text = boss.get(address(failed, "resume", step="pay")).content.decode()

    assert "What it would do" in text
    assert "found by their receipts: nobody is called" in text
    for name in ("pay", "tell", "pay:1"):
        assert f"<code>{name}</code>" in text
    before = failed.version
    failed.refresh_from_db()
    assert (failed.state, failed.version) == ("failed", before)
    assert not Repair.objects.exists()


def test_a_confirmed_retry_acts_and_is_kept_with_who_why_and_what_was_seen(
    ann: Client, failed: Run, carried: Any
) -> None:
    data = looked(ann, failed, "retry-step", step="tell")
    page = carried(lambda: sent(ann, failed, "retry-step", data))

    assert "Step tell is tried again" in page.content.decode()
    assert Run.objects.get(pk=failed.pk).state == "completed"
    kept = Repair.objects.get()
    assert (kept.actor, kept.role) == ("user:ann", "night shift")
    assert (kept.reason, kept.expected_version) == ("the line is up again", failed.version)
    assert LogEntry.objects.get().change_message == "Retry tell: the line is up again"
    assert Event.objects.get(run_id=failed.id, type="repair.retry_step").actor == "user:ann"


def test_a_double_click_acts_once(boss: Client, failed: Run, carried: Any) -> None:
    data = looked(boss, failed, "retry-step", step="tell")
    carried(lambda: sent(boss, failed, "retry-step", data))
    again = sent(boss, failed, "retry-step", data)

    assert "had been done already" in again.content.decode()
    assert Repair.objects.count() == 1
    assert LogEntry.objects.count() == 1


def test_of_two_operators_one_acts_and_the_other_reads_why_not(
    boss: Client, ann: Client, failed: Run, carried: Any
) -> None:
    first = looked(boss, failed, "retry-step", step="tell")
    second = looked(ann, failed, "retry-step", step="tell")
    carried(lambda: sent(boss, failed, "retry-step", first))
    late = sent(ann, failed, "retry-step", second, reason="I was about to <mend> it")

    text = late.content.decode()
    assert late.status_code == 409
    assert "Nothing was done. The run has moved on since you looked at it: it is completed" in text
    assert "user:boss" in text
    assert "I was about to &lt;mend&gt; it" in text
    assert 'name="act"' not in text
    assert Repair.objects.get().actor == "user:boss"


@pytest.mark.django_db(transaction=True)  # the answer that came early refuses the first write
def test_a_page_that_saw_an_older_version_shows_the_fresh_one_and_can_be_sent_again(
    boss: Client, shop: Caller, run_of: Callable[..., Run], carried: Any
) -> None:
    run = run_of(a={**FLAKY, "on_error": "pause"}, hear={"type": "wait", "signal": "go"})
    assert run.state == "paused"
    data = looked(boss, run, "retry-step", step="a")
    signal = {"name": "go", "signal_id": "s", "payload": {}}
    carried(lambda: shop.post(f"/v1/workflows/{run.id}/signals", signal))
    stale = sent(boss, run, "retry-step", data)

    assert stale.status_code == 409
    assert "moved on since you looked" in stale.content.decode()
    fresh = hidden(stale)
    assert int(fresh["version"]) > int(data["version"])
    done = carried(lambda: sent(boss, run, "retry-step", fresh))
    assert "is tried again" in done.content.decode()


def test_without_a_reason_nothing_happens_and_the_preview_stays(boss: Client, failed: Run) -> None:
    data = looked(boss, failed, "retry-step", step="tell")
    page = sent(boss, failed, "retry-step", data, reason="  ")

    assert "This field is required" in page.content.decode()
    assert "What it would do" in page.content.decode()
    assert not Repair.objects.exists()


def test_nobody_confirms_another_thing_than_was_shown(boss: Client, failed: Run) -> None:
    data = looked(boss, failed, "resume", step="tell")
    page = sent(boss, failed, "resume", data, step="pay")

    assert page.status_code == 409
    assert "Nothing was done yet" in page.content.decode()
    assert not Repair.objects.exists()


def test_a_used_page_with_another_reason_says_that_it_was_done(
    boss: Client, failed: Run, carried: Any
) -> None:
    data = looked(boss, failed, "retry-step", step="tell")
    carried(lambda: sent(boss, failed, "retry-step", data))
    page = sent(boss, failed, "retry-step", data, reason="another")

    assert "was used already" in page.content.decode()
    assert hidden(page)["token"] != data["token"]
    assert Repair.objects.count() == 1


@pytest.mark.parametrize(
    ("word", "target", "said"),
    [
        ("retry-step", {"step": "pay"}, "only a step that failed"),
        ("retry-step", {"step": "nobody"}, "The workflow has no step"),
        ("skip-step", {"step": "tell"}, "only a step marked optional"),
        ("compensate-step", {"step": "pay"}, "Step pay is completed"),
        ("settle-effect", {"effect_key": "pay:1", "outcome": "not_applied"}, "pay:1 is applied"),
        ("resume", {"from_sequence": "99999"}, "no step ended after that line"),
    ],
)
def test_what_the_state_forbids_is_said_before_anybody_confirms(
    boss: Client, failed: Run, word: str, target: dict[str, str], said: str
) -> None:
    page = boss.get(address(failed, word, **target))
    text = page.content.decode()
    if word == "settle-effect":
        page = boss.post(address(failed, word), {**target, "look": "yes"})
        text = page.content.decode()

    assert page.status_code == 409
    assert said in text
    assert 'name="act"' not in text


@pytest.mark.parametrize(
    "target", [{}, {"step": ""}, {"step": "a\x00b"}, {"step": "tell", "scope": "[x"}]
)
def test_what_no_page_sends_is_no_failure_of_the_server(
    boss: Client, failed: Run, target: dict[str, str]
) -> None:
    assert boss.get(address(failed, "retry-step", **target)).status_code in (200, 400, 404, 409)
    assert boss.get(address(failed, "nothing")).status_code == 404
    data = {**target, "version": "9" * 5000, "token": "no uuid", "seen": "x"}
    assert sent(boss, failed, "retry-step", data).status_code in (200, 400, 409)
    assert not Repair.objects.exists()


# -- undo, resume, settle --------------------------------------------------------------------------


def test_a_step_is_undone_with_what_stands_on_it(
    boss: Client, run_of: Callable[..., Run], carried: Any
) -> None:
    behind = {**SAY, "needs": ["pay"], "effect": {"key": "ship:1"}}
    back = {"tool": "probe.say", "input": {"value": 0}, "effect": {"key": "unship:1"}}
    run = run_of(pay={**PAY, **UNDO}, ship={**behind, "compensate": back})
    refused = boss.get(address(run, "compensate-step", step="pay"))
    assert "followed by ship, done and not undone. Tick below" in refused.content.decode()

    shown = boss.post(
        address(run, "compensate-step"), {**hidden(refused), "with_dependents": "on", "look": "y"}
    )
    for name in ("pay:1", "ship:1", "back:1", "unship:1"):
        assert f"<code>{name}</code>" in shown.content.decode()
    carried(lambda: sent(boss, run, "compensate-step", hidden(shown), with_dependents="on"))

    run.refresh_from_db()
    assert (run.state, run.compensation) == ("completed", "full")
    assert Repair.objects.get().step == "pay"


def test_while_a_run_is_undone_it_offers_neither_a_pause_nor_another_undo(
    boss: Client, run_of: Callable[..., Run]
) -> None:
    run = run_of(pay={**PAY, **UNDO})
    sent(boss, run, "compensate-step", looked(boss, run, "compensate-step", step="pay"))
    run.refresh_from_db()
    assert run.state == "compensating"
    text = run_page(boss, run)

    assert reverse("admin:orchestrator_run_pause", args=[run.id]) not in text
    assert address(run, "compensate-step", step="pay") not in text


def test_a_run_goes_on_from_a_line_of_its_history(boss: Client, failed: Run, carried: Any) -> None:
    line = str(Event.objects.get(run_id=failed.id, type="step.completed").seq)
    asked = boss.get(address(failed, "resume"))
    assert 'name="act"' not in asked.content.decode()
    shown = boss.post(address(failed, "resume"), {"from_sequence": line, "look": "yes"})
    carried(lambda: sent(boss, failed, "resume", hidden(shown), from_sequence=line))

    assert Run.objects.get(pk=failed.pk).state == "completed"
    assert probes.calls["pay"] == 0
    assert Effect.objects.count() == 1


@pytest.fixture
def doubtful(run_of: Callable[..., Run]) -> Run:
    """A run whose payment nobody can tell the fate of."""

    def body(_: Any) -> Any:
        raise Transient("connection lost")

    probes.hooks["pay"] = body
    pay = {"type": "tool", "tool": "probe.hook", "input": {"name": "pay"}, "effect": {"key": "p:1"}}
    run = run_of(pay=pay)
    assert (run.state, run.waiting_for) == ("waiting", "review")
    return run


def test_an_effect_in_doubt_is_settled_as_applied_with_its_reference(
    boss: Client, doubtful: Run, carried: Any
) -> None:
    settle = address(doubtful, "settle-effect", step="pay", effect_key="p:1")
    assert settle.replace("&", "&amp;") in run_page(boss, doubtful)
    effect = reverse("admin:orchestrator_effect_change", args=[Effect.objects.get().pk])
    assert settle.replace("&", "&amp;") in boss.get(effect).content.decode()
    asked = hidden(boss.get(settle))
    found = {"outcome": "applied", "external_ref": "R-9"}
    bare = boss.post(address(doubtful, "settle-effect"), {**asked, "outcome": "applied"})
    assert "Give the provider&#x27;s reference" in bare.content.decode()
    broken = {**asked, **found, "output": "{no json"}
    page = boss.post(address(doubtful, "settle-effect"), broken).content.decode()
    assert "not valid JSON" in page
    assert "{no json" in page
    assert ">null</textarea>" not in boss.get(settle).content.decode()

    shown = boss.post(address(doubtful, "settle-effect"), {**asked, **found, "look": "yes"})
    carried(lambda: sent(boss, doubtful, "settle-effect", hidden(shown), **found))

    doubtful.refresh_from_db()
    assert (doubtful.state, doubtful.output) == ("completed", {"pay": {"external_ref": "R-9"}})
    assert Effect.objects.get().external_ref == "R-9"


@pytest.mark.parametrize("output", ['{"a": "\\u0000"}', '"\\ud800"', "NaN", "1e999", "[" * 5000])
def test_an_output_that_cannot_be_kept_is_refused_in_a_sentence(
    boss: Client, doubtful: Run, output: str
) -> None:
    asked = looked(boss, doubtful, "settle-effect", step="pay", effect_key="p:1")
    given = {"outcome": "applied", "output": output}
    shown = boss.post(address(doubtful, "settle-effect"), {**asked, **given, "look": "y"})
    assert shown.status_code in (200, 409)
    done = sent(boss, doubtful, "settle-effect", hidden(shown), **given)

    assert done.status_code in (200, 409)
    assert 'class="refused"' in done.content.decode() or "errorlist" in done.content.decode()
    assert Effect.objects.get().status == "in_doubt"


def test_an_effect_in_doubt_that_did_not_happen_is_called_again(
    boss: Client, doubtful: Run, carried: Any
) -> None:
    probes.hooks["pay"] = lambda _: "paid"
    asked = looked(boss, doubtful, "settle-effect", step="pay", effect_key="p:1")
    not_applied = {"outcome": "not_applied"}
    shown = boss.post(address(doubtful, "settle-effect"), {**asked, **not_applied, "look": "y"})
    assert "Effects that are called" in shown.content.decode()
    carried(lambda: sent(boss, doubtful, "settle-effect", hidden(shown), **not_applied))

    doubtful.refresh_from_db()
    assert doubtful.output == {"pay": "paid"}


# -- the keyboard ----------------------------------------------------------------------------------


def test_every_field_has_its_label_and_every_act_is_a_link_or_a_button(
    boss: Client, doubtful: Run
) -> None:
    text = boss.get(
        address(doubtful, "settle-effect", step="pay", effect_key="p:1")
    ).content.decode()
    for name in ("reason", "external_ref", "output"):
        assert f'<label for="id_{name}">' in text
        assert f'id="id_{name}_helptext"' in text
    assert "<legend>Outcome</legend>" in text
    assert text.index("autofocus") < text.index('id="id_external_ref"')
    assert 'name="look" formnovalidate' in text
    assert "onclick" not in text
    row = run_page(boss, doubtful)
    assert 'aria-label="Settle p:1 … (pay)"' in row
