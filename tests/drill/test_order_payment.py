"""The drill of all drills: the payment went through, then the worker died before it said so."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core import mail

from approvals_app import decisions
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import crash, engine
from orchestrator.engine import ports
from orchestrator.engine.replaying import replay_run
from orchestrator.models import Run, Step
from orchestrator.ops.invariants import check_runs
from orchestrator.tools.discovery import discover_tools
from tests.drill.forking import Died, fork
from tests.engine.carrier import Carrier
from tests.engine.runs import events, settle_down
from workflows_app import gallery
from workflows_app.gallery.models import DemoFault, DemoLedgerEntry
from workflows_app.models import Tenant
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.publishing import publish
from workflows_app.triggering import start

Turn = Callable[[float], None]
TENANT = "acme"
SHOP = Principal(tenant=TENANT, actor="service:shop", scopes=ALL_SCOPES)
FINANCE = Person(actor="user:fay", roles=frozenset({"finance"}))
ORDER = {"order_id": "A-1", "amount_cents": 4900, "customer_email": "maria@example.com"}


@pytest.fixture
def carrier(transactional_db: None, settings: Any) -> Iterator[Carrier]:
    discover_tools()
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "DEMO_LATENCY_MS": 0}
    Tenant.ensure(TENANT)
    text = (Path(gallery.__file__).parent / "order_payment.yaml").read_bytes()
    publish(TENANT, text, "application/yaml", actor="user:author")
    usual, mine = ports.dispatcher(), Carrier()
    engine.set_dispatcher(mine)
    yield mine
    engine.set_dispatcher(usual)


def approved(carrier: Carrier) -> UUID:
    """An order that finance has agreed to; nobody has worked on it since."""
    run_id = start(SHOP, "order_payment", {"input": ORDER}, key="A-1").run_id
    carrier.run_all()
    request = Request.objects.get(run_id=run_id)
    body = decisions.parse_body({"decision": "approve"})
    decisions.decide(request.pk, body, tenant=TENANT, person=FINANCE)
    return run_id


def killed(carrier: Carrier, place: str, step: str) -> None:
    """A worker delivers what there is and dies, by SIGKILL, at this place of this step."""

    def die(arrived_at: str) -> None:
        if arrived_at == place and Step.objects.filter(key=step, state="running").exists():
            signal.raise_signal(signal.SIGKILL)

    def work() -> None:
        crash.set_hook(die)
        carrier.run_all()

    with pytest.raises(Died) as death:
        fork(work).result()
    assert death.value.args == (signal.SIGKILL,)
    carrier.messages.clear()  # they died with it


def lease_is_over(step: str) -> None:
    """Nobody renews what the dead worker held."""
    held = Step.objects.filter(key=step, state="running")
    assert held.update(lease_until="2000-01-01T00:00Z") == 1


def book() -> Counter[str]:
    """What the demo's services have really done."""
    return Counter(f"{entry.service}.{entry.operation}" for entry in DemoLedgerEntry.objects.all())


def again(carrier: Carrier, run_id: UUID, turn_time: Turn) -> None:
    """Every message that was ever sent comes again, sweeps go round, and history is replayed."""
    for message in list(carrier.sent):
        carrier.messages.append(message)
    carrier.run_all()
    turn_time(3600)
    engine.beat_once()
    carrier.run_all()
    replayed = replay_run(run_id)
    assert replayed is not None
    assert replayed.identical, replayed
    assert not [v for finding in check_runs([run_id]) for v in finding.violations]


@pytest.mark.parametrize("place", ["body:after", "performed", "apply:before"])
def test_killed_right_after_the_provider_took_the_money_it_ends_with_one_charge(
    carrier: Carrier, turn_time: Turn, place: str
) -> None:
    run_id = approved(carrier)
    killed(carrier, place, "charge")
    assert book() == {"payments.charge": 1}
    assert Run.objects.get(pk=run_id).state == "running"
    assert "effect.receipt" not in events(run_id)
    lease_is_over("charge")
    settle_down(carrier, turn_time)
    assert Run.objects.get(pk=run_id).state == "completed"
    assert book() == {"payments.charge": 1, "crm.update": 1}
    assert len(mail.outbox) == 1
    again(carrier, run_id, turn_time)
    assert book() == {"payments.charge": 1, "crm.update": 1}
    assert len(mail.outbox) == 1


@pytest.mark.parametrize("dies", [False, True], ids=["no_death", "killed_after_the_charge"])
def test_with_update_crm_failing_for_good_it_ends_with_one_charge_and_one_refund(
    carrier: Carrier, turn_time: Turn, dies: bool
) -> None:
    kind = DemoFault.Kind.PERMANENT
    DemoFault.objects.create(service="crm", operation="update", kind=kind, remaining=100)
    run_id = approved(carrier)
    if dies:
        killed(carrier, "body:after", "charge")
        lease_is_over("charge")
    settle_down(carrier, turn_time)
    run = Run.objects.get(pk=run_id)
    assert (run.state, run.compensation) == ("failed", "full")
    assert book() == {"payments.charge": 1, "payments.refund": 1}
    assert mail.outbox == []
    again(carrier, run_id, turn_time)
    assert book() == {"payments.charge": 1, "payments.refund": 1}


def test_killed_right_after_the_provider_gave_the_money_back_it_ends_with_one_refund(
    carrier: Carrier, turn_time: Turn
) -> None:
    kind = DemoFault.Kind.PERMANENT
    DemoFault.objects.create(service="crm", operation="update", kind=kind, remaining=100)
    run_id = approved(carrier)
    killed(carrier, "body:after", "undo:charge")
    assert book() == {"payments.charge": 1, "payments.refund": 1}
    lease_is_over("undo:charge")
    settle_down(carrier, turn_time)
    assert Run.objects.get(pk=run_id).compensation == "full"
    again(carrier, run_id, turn_time)
    assert book() == {"payments.charge": 1, "payments.refund": 1}
