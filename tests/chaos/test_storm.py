"""Every run ends, and no work is done again, whatever happens around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.processes import world
from tests.chaos.storm import Storm

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


def test_every_run_ends_once_while_everything_around_it_is_killed(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    with django_db_blocker.unblock(), world(tmp_path) as mine:
        storm = Storm(mine, runs=40, seed=20261130, lasts_s=18, every_s=1.8)
        storm.blow()
        ended = storm.progress()["ended"]

    assert storm.failures == []
    assert ended >= 40
    assert len(storm.done) >= len(storm.monkeys)
