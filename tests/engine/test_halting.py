"""What cannot be read is halted and told of, and goes on once it is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from orchestrator import engine
from orchestrator.engine import blueprints, halting
from orchestrator.models import Alert, Blueprint, Run
from tests.engine.carrier import Carrier
from tests.engine.runs import lose, payload, say, settle_down, started, state, step

STEPS = {"a": say(1), "w": {"type": "wait", "for": "1h", "needs": ["a"]}}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has just started."""
    monkeypatch.setattr(halting, "_met", halting._Met())
    blueprints.compiled.cache_clear()
    yield
    blueprints.compiled.cache_clear()


@contextmanager
def other_bytes(run: Run) -> Iterator[None]:
    """The stored document is not what its digest says."""
    found = Blueprint.objects.get(pk=run.blueprint_id)
    whole = bytes(found.canonical)
    Blueprint.objects.filter(pk=found.pk).update(canonical=whole.replace(b"1h", b"2h"))
    blueprints.compiled.cache_clear()
    yield
    Blueprint.objects.filter(pk=found.pk).update(canonical=whole)
    blueprints.compiled.cache_clear()


def begun() -> Run:
    return Run.objects.get(pk=started(STEPS))


def test_a_document_that_lost_its_digest_halts_the_run_at_its_claim(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run = begun()
    with other_bytes(run):
        carrier.run_all()
        assert state(run) == "paused"
        assert "does not have the digest" in payload(run, "run.paused")["reason"]
        alert = Alert.objects.get(kind="unreadable", closed_at=None)
        assert (alert.run_id, alert.severity) == (run.pk, "critical")
        for _ in range(3):  # what sweeps meet again does no harm
            turn_time(20)
            engine.beat_once()
            carrier.run_all()
        assert Alert.objects.get(kind="unreadable").count == 1
    engine.resume_run(run.pk, actor="user:x", reason="the bytes are back")
    assert not Alert.objects.filter(closed_at=None, kind="unreadable").exists()
    lose(run, "a")  # it had been claimed when its document could not be read
    settle_down(carrier, turn_time, by=3601)
    assert state(run) == "completed"


def test_a_sweep_that_meets_one_goes_on_with_the_others(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    ill, well = begun(), Run.objects.get(pk=started({"w": {"type": "wait", "for": "1h"}}))
    carrier.run_all()
    turn_time(3601)
    with other_bytes(ill):
        engine.beat_once()
        assert (state(ill), state(well)) == ("paused", "completed")
    engine.resume_run(ill.pk, actor="user:x", reason="mended")
    settle_down(carrier, turn_time)


def test_a_compact_state_of_an_unknown_format_halts_the_run(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run = begun()
    _set_format(run, 99)
    carrier.run_all()
    assert state(run) == "paused"
    assert "format 99" in payload(run, "run.paused")["reason"]
    assert step(run, "a").attempt == 0
    _set_format(run, 2)  # a build that reads it
    engine.resume_run(run.pk, actor="user:x", reason="the right build")
    settle_down(carrier, turn_time, by=3601)
    assert state(run) == "completed"


def _set_format(run: Run, number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_run SET compact = set_byte(compact, 0, %s) WHERE id = %s",
            [number, run.pk],
        )


def test_a_healthy_blueprint_is_read_once_a_process(
    carrier: Carrier, django_assert_num_queries: Callable[[int], object]
) -> None:
    run = begun()
    blueprints.compiled(run.blueprint_id)
    with django_assert_num_queries(0):  # type: ignore[attr-defined]
        blueprints.compiled(run.blueprint_id)
