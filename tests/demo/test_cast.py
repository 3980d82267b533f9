"""What the demo puts into the database: its own rows only, found again the next time."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals_app.models import Request
from config.demo.cast import assemble
from config.demo.exhibits import leave_orders_open
from orchestrator import engine
from orchestrator.engine import ports
from tests.engine.carrier import Carrier
from workflows_app.models import ApiToken

pytestmark = pytest.mark.django_db


def test_the_login_and_the_token_work_and_stay_the_same(tmp_path: Path) -> None:
    first, second = assemble(tmp_path), assemble(tmp_path)

    assert first == second
    assert Client().login(username="demo", password=first.password)
    token = first.token_file.read_text().strip()
    answer = Client(headers={"Authorization": f"Bearer {token}"}).get("/v1/approvals")
    assert answer.status_code == 200
    assert ApiToken.objects.count() == 1


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    cast = assemble(tmp_path)

    for file in (cast.password_file, cast.token_file):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_token_of_another_database_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "demo_token").write_text("wf_of-a-database-that-is-gone\n")

    cast = assemble(tmp_path)

    assert cast.token_file.read_text().strip() != "wf_of-a-database-that-is-gone"


def test_the_password_of_the_data_folder_is_made_good_again(tmp_path: Path) -> None:
    cast = assemble(tmp_path)
    user = User.objects.get()
    user.set_password("another")
    user.save()

    assemble(tmp_path)

    assert Client().login(username="demo", password=cast.password)


def test_the_gallery_is_published_once(tmp_path: Path) -> None:
    assemble(tmp_path)

    assert assemble(tmp_path).workflows == (
        "content_appeal 1",
        "content_moderation 1",
        "customer_support 1",
        "document_processing 1",
        "order_approval 1",
        "order_payment 1",
    )


@pytest.mark.django_db(transaction=True)
def test_orders_are_left_open_for_as_long_as_nobody_has_decided(tmp_path: Path) -> None:
    usual = ports.dispatcher()
    carrier = Carrier()
    engine.set_dispatcher(carrier)
    try:
        cast = assemble(tmp_path)
        for _ in range(2):
            leave_orders_open(cast)
            carrier.run_all()
    finally:
        engine.set_dispatcher(usual)

    waiting = Request.objects.open().order_by("workflow").values_list("workflow", flat=True)
    assert list(waiting) == ["order_approval", "order_payment"]
