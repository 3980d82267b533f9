"""Every engine test runs over the real database and ends with all invariants checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.engine import breakers, gates, ports
from orchestrator.engine.pace import Pace, pace
from orchestrator.ops import orphan_rules
from orchestrator.ops.invariants import check_runs, newest_runs
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.replays import assert_replays

# These need no grace: a move is one transaction.
AT_ONCE = tuple(orphan_rules.ORPHANS[:4])


@pytest.fixture
def carrier(transactional_db: None) -> Iterator[Carrier]:
    """Wake-ups delivered in this process, when the test says so. Whatever the test did, the runs
    that it leaves behind must be sound, none an orphan, and their histories lead to where they
    stand."""
    usual = ports.dispatcher()
    mine = Carrier()
    engine.set_dispatcher(mine)
    probes.forget()
    gates.cache.forget()
    breakers.tallies.forget()
    pace.forget()
    yield mine
    engine.set_dispatcher(usual)
    gates.cache.forget()
    if mine.damaged:
        return
    assert_replays()
    broken = [v for finding in check_runs(newest_runs(1000)) for v in finding.violations]
    assert not broken, broken
    orphans = [one.title for rule in AT_ONCE for one in orphan_rules.find(rule)]
    assert not orphans, orphans


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is claimed by itself, however short its body."""
    monkeypatch.setattr(Pace, "known", lambda _: {})


@pytest.fixture(params=[True, False], ids=["fused", "single"])
def fusion(request: pytest.FixtureRequest, settings: Any) -> bool:
    """Both ways of sending: stretches in one message, and each step its own."""
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "FUSE": request.param}
    return bool(request.param)
