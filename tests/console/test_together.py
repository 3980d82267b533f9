"""Several operators at the same moment, each with a connection of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.test import Client

from orchestrator import engine
from orchestrator.models import BulkItem, BulkRetry, DeadLetter, Repair, Run
from orchestrator.models.statements import execute
from tests.console.test_repairing import looked, sent
from tests.engine.carrier import Carrier
from tests.engine.conftest import carrier
from tests.engine.runs import fail, ran, state
from tests.engine.test_concurrency import all_at_once

__all__ = ["carrier"]

pytestmark = pytest.mark.django_db(transaction=True)


def failed(carrier: Carrier) -> Run:
    run = ran(carrier, {"a": fail(times=1, kind="permanent")})
    assert state(run) == "failed"
    return run


def operators(count: int) -> list[Client]:
    clients = [Client() for _ in range(count)]
    for place, client in enumerate(clients):
        client.force_login(User.objects.create_superuser(f"op{place}"))
    return clients


def test_of_several_operators_at_once_one_acts_and_the_others_read_why_not(
    carrier: Carrier,
) -> None:
    run = failed(carrier)
    clients = operators(4)
    seen = [(client, looked(client, run, "retry-step", step="a")) for client in clients]

    def confirm(client: Client, data: dict[str, str]) -> Any:
        return lambda: sent(client, run, "retry-step", data)

    answers = all_at_once([confirm(client, data) for client, data in seen])

    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 3}
    for answer in answers:
        if answer.status_code == 409:
            assert "moved on since you looked" in answer.content.decode()
    assert Repair.objects.count() == 1
    carrier.run_all()
    assert state(run) == "completed"


def test_the_same_page_sent_twice_at_once_acts_once_and_succeeds_twice(carrier: Carrier) -> None:
    run = failed(carrier)
    (client,) = operators(1)
    data = looked(client, run, "retry-step", step="a")
    answers = all_at_once([lambda: sent(client, run, "retry-step", data)] * 2)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert Repair.objects.count() == 1


def test_a_bulk_that_several_work_on_at_once_handles_each_letter_once(carrier: Carrier) -> None:
    for _ in range(6):
        failed(carrier)
    chosen = DeadLetter.objects.all()
    who = {"actor": "user:ann", "role": ""}
    engine.start_bulk(uuid4(), chosen, chosen_by={}, reason="mended", **who)
    bulk = BulkRetry.objects.get()

    all_at_once([lambda: engine.work_bulk(bulk, **who, at_most=6)] * 3)

    assert engine.bulk_progress(bulk) == engine.BulkProgress(total=6, retried=6, refused=0, left=0)
    assert set(BulkItem.objects.values_list("code", flat=True)) == {""}
    assert Repair.objects.count() == 6
    carrier.run_all()
    assert set(Run.objects.values_list("state", flat=True)) == {"completed"}


@pytest.fixture
def no_result_can_be_kept(carrier: Carrier) -> Iterator[Callable[[], None]]:
    """The database refuses to close an item, until the returned function is called."""
    del carrier

    def mend() -> None:
        execute("ALTER TABLE orchestrator_bulkitem DROP CONSTRAINT IF EXISTS nothing_is_closed", [])

    execute(
        "ALTER TABLE orchestrator_bulkitem ADD CONSTRAINT nothing_is_closed CHECK (status = '')", []
    )
    yield mend
    mend()


def test_a_letter_whose_result_was_not_kept_was_not_retried_and_is_taken_again(
    carrier: Carrier, no_result_can_be_kept: Callable[[], None]
) -> None:
    failed(carrier)
    who = {"actor": "user:ann", "role": ""}
    engine.start_bulk(uuid4(), DeadLetter.objects.all(), chosen_by={}, reason="mended", **who)
    bulk = BulkRetry.objects.get()
    with pytest.raises(IntegrityError):
        engine.work_bulk(bulk, **who, at_most=1)
    assert not Repair.objects.exists()
    assert engine.bulk_progress(bulk).left == 1

    no_result_can_be_kept()
    assert engine.work_bulk(bulk, **who, at_most=1).retried == 1
    carrier.run_all()
