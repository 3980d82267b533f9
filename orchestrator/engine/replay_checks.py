"""Replays whose results are kept with the runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from orchestrator.core.decision import DECISIONS
from orchestrator.engine.replaying import Replayed, replay_runs
from orchestrator.models import replay_rows
from orchestrator.models.replay_rows import Check

_KEPT_AT_ONCE = 500


def check_replays(run_ids: Iterable[UUID], *, deep: bool = False) -> Iterator[Replayed]:
    """Replay these runs and keep what came of each, some hundreds in a transaction of its own."""
    found = replay_runs(run_ids, deep=deep)
    while True:
        began = time.monotonic()
        some = list(islice(found, _KEPT_AT_ONCE))
        if not some:
            return
        checks = [_check(replayed) for replayed in some]
        replay_rows.store_checks(checks, seconds=time.monotonic() - began)
        yield from some


def _check(replayed: Replayed) -> Check:
    difference = replayed.difference
    return Check(
        run_id=replayed.run_id,
        n_lines=replayed.n_lines,
        decisions=DECISIONS,
        identical=None if replayed.unread else replayed.identical,
        unread=replayed.unread,
        difference=None if difference is None else difference.as_json(),
    )
