"""``manage.py approve``: an operator decides from the shell, by the approval's or the run's id."""

from __future__ import annotations

from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from approvals_app.executor import HumanGateExecutor
from approvals_app.models import Decision, Request
from orchestrator.models import Run
from tests.approvals.builders import GATE, a_context, a_step_at_work, ask
from tests.approvals.runs import asking
from tests.engine.carrier import Carrier


def approve(*words: Any) -> str:
    out = StringIO()
    call_command("approve", *(str(word) for word in words), stdout=out)
    return out.getvalue().strip()


@pytest.mark.django_db(transaction=True)
def test_a_run_that_waits_is_approved_by_its_id_and_goes_on(carrier: Carrier) -> None:
    request = asking(carrier)

    said = approve(request.run_id, "--notes", "by phone", "--as", "user:op")
    carrier.run_all()

    assert said == "order / approve: approved."
    run = Run.objects.get()
    assert run.state == "completed"
    assert run.output["gate"]["notes"] == "by phone"
    assert run.output["gate"]["by"] == "user:op"
    with pytest.raises(CommandError, match="This approval is decided"):
        approve(request.run_id, "--as", "user:other")


@pytest.mark.django_db(transaction=True)
def test_an_approval_is_rejected_by_its_own_id(carrier: Carrier) -> None:
    request = asking(carrier)

    assert approve(request.pk, "--reject") == "order / approve: rejected."

    assert Run.objects.get().state == "failed"


@pytest.mark.django_db
def test_one_of_several_approvers_is_told_that_more_are_needed() -> None:
    request = ask({**GATE, "quorum": 2})

    assert approve(request.pk).endswith("noted; more approvers are needed.")


@pytest.mark.django_db
def test_a_form_that_is_not_filled_is_explained_with_its_pointer() -> None:
    form = {"type": "object", "properties": {"limit": {"type": "integer"}}}
    request = ask({**GATE, "quorum": 2, "form": form})

    with pytest.raises(CommandError, match="/data/limit"):
        approve(request.pk, "--data", '{"limit": "x"}')
    with pytest.raises(CommandError, match="not JSON"):
        approve(request.pk, "--data", "{")

    assert not Decision.objects.exists()


@pytest.mark.django_db
def test_a_run_with_several_open_gates_needs_one_to_be_named() -> None:
    step = a_step_at_work()
    HumanGateExecutor().execute(a_context(step))
    first = Request.objects.get()
    first.pk, first.key = uuid4(), "second"
    first.save(force_insert=True)

    with pytest.raises(CommandError, match="several") as refusal:
        approve(step.run_id)

    assert str(first.pk) in str(refusal.value)


@pytest.mark.django_db
def test_an_id_of_nothing_is_told_so() -> None:
    with pytest.raises(CommandError, match="There is no approval"):
        approve(uuid4())


@pytest.mark.django_db
def test_the_starter_of_a_four_eyes_gate_cannot_stand_in_for_others() -> None:
    request = ask({**GATE, "four_eyes": True})

    with pytest.raises(CommandError, match="four_eyes"):
        approve(request.pk, "--as", "user:starter")
