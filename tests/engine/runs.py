"""Runs of real workflows over the real database, brought to an end by a carrier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from orchestrator import engine
from orchestrator.core.definition import canonical_json, parse_document
from orchestrator.models import Blueprint, Event, Run, Step, Timer
from tests.engine.carrier import Carrier
from tests.engine.probes import Killed

TENANT = "acme"
NO_RETRY = {"retry": {"max_retries": 0}}


def say(value: Any = None, **step: Any) -> dict[str, Any]:
    """A step that says something."""
    return {"type": "tool", "tool": "probe.say", "input": {"value": value}, **step}


def fail(kind: str = "permanent", times: int = 10_000, **step: Any) -> dict[str, Any]:
    """A step that fails; ``permanent`` at once."""
    return {"type": "tool", "tool": "probe.fail", "input": {"times": times, "kind": kind}, **step}


def hook(name: str, value: Any = None, **step: Any) -> dict[str, Any]:
    """A step that runs a hook of the test in its body."""
    given = {"name": name, "value": value}
    return {"type": "tool", "tool": "probe.hook", "input": given, **step}


def count(name: str, value: Any = None, **step: Any) -> dict[str, Any]:
    """A step that counts how often it ran."""
    given = {"name": name, "value": value}
    return {"type": "tool", "tool": "probe.count", "input": given, **step}


def registered(
    steps: Mapping[str, Any],
    *,
    pins: Mapping[str, str] | None = None,
    tenant: str = TENANT,
    **more: Any,
) -> Blueprint:
    value = {"schema": "orchestrator/v1", "name": "flow", "steps": dict(steps), **more}
    document, problems = parse_document(value)
    assert document is not None, problems
    return engine.register_blueprint(
        tenant=tenant,
        document=document,
        value=value,
        canonical=canonical_json(value),
        pins=pins or {},
    )


def started(steps: Mapping[str, Any], data: Any = None, **more: Any) -> UUID:
    blueprint = registered(steps, **more)
    return start(blueprint, data)


def start(blueprint: Blueprint, data: Any = None) -> UUID:
    return engine.start_run(
        tenant=blueprint.tenant,
        blueprint=blueprint,
        workflow=blueprint.name,
        version=1,
        input={} if data is None else data,
        actor="user:tester",
    )


def ran(carrier: Carrier, steps: Mapping[str, Any], data: Any = None, **more: Any) -> Run:
    """A run for as far as messages carry it."""
    run_id = started(steps, data, **more)
    carrier.run_all()
    return Run.objects.get(pk=run_id)


def settle_down(
    carrier: Carrier, turn_time: Callable[[float], None], *, by: float = 61, rounds: int = 200
) -> None:
    """Beats and messages until no run is open; time is turned where nothing moves."""
    for _ in range(rounds):
        carrier.run_all()
        if not Run.objects.open().exists():
            return
        engine.beat_once()
        if not carrier.messages:
            turn_time(by)
            engine.beat_once()
    left = list(Run.objects.open().values_list("state", "waiting_for"))
    raise AssertionError(f"runs go nowhere: {left}")


def output(run: Run | UUID) -> Any:
    found = run if isinstance(run, Run) else Run.objects.get(pk=run)
    found.refresh_from_db()
    assert found.state == "completed", (found.state, found.error)
    return found.output


def state(run: Run | UUID) -> str:
    return Run.objects.get(pk=run.pk if isinstance(run, Run) else run).state


def error(run: Run | UUID) -> Any:
    return Run.objects.get(pk=run.pk if isinstance(run, Run) else run).error


def step(run: Run | UUID, key: str, scope: str = "") -> Step:
    run_id = run.pk if isinstance(run, Run) else run
    return Step.objects.get(run_id=run_id, key=key, scope=scope)


def steps_of(run: Run) -> dict[str, str]:
    """The state of each step, as people see it."""
    run.refresh_from_db()
    return {s.key + s.scope: s.state for s in engine.picture(run).steps}


def events(run: Run | UUID, key: str | None = None) -> list[str]:
    run_id = run.pk if isinstance(run, Run) else run
    found = Event.objects.filter(run_id=run_id).order_by("seq")
    return list((found if key is None else found.filter(step=key)).values_list("type", flat=True))


def payload(run: Run | UUID, kind: str) -> Any:
    run_id = run.pk if isinstance(run, Run) else run
    return Event.objects.filter(run_id=run_id, type=kind).order_by("seq").last().payload


def n_timers(run: Run | UUID) -> int:
    return Timer.objects.filter(run_id=run.pk if isinstance(run, Run) else run).count()


def kill(carrier: Carrier) -> None:
    """Deliver until a body's hook ends its worker; the claim stays as the worker left it."""
    with pytest.raises(Killed):
        carrier.run_all()


def lose(run: Run | UUID, key: str, scope: str = "") -> None:
    """The worker died: nobody renews the lease, and it is over."""
    _end_lease(step(run, key, scope), timeout=False)


def hang(run: Run | UUID, key: str, scope: str = "") -> None:
    """The body hangs: the step's own time is over, and the lease with it."""
    _end_lease(step(run, key, scope), timeout=True)


def _end_lease(row: Step, *, timeout: bool) -> None:
    over = "orchestrator_now() - interval '1 second'"
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE orchestrator_step SET lease_until = {over},"
            f" timeout_at = CASE WHEN %s THEN {over} ELSE timeout_at END"
            " WHERE id = %s AND state = 'running'",
            [timeout, row.pk],
        )
        assert cursor.rowcount == 1, f"{row} is not running"
