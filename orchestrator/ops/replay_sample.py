"""Replay on a beat: a sample of the runs that ended, the rate of identical ones, and an alert."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.db import OperationalError, transaction

from orchestrator.conf import engine_settings
from orchestrator.engine.replay_checks import check_replays
from orchestrator.models import alert_rows, duty_rows, replay_rows
from orchestrator.models.replay_rows import Rate
from orchestrator.ops.patience import ran_out_of_patience, set_patience

DUTY = "replay"
KIND = "replay"
KEY = "pass_rate"
EVERY_S = 240.0
"""Beat asks each five minutes; a second one at the same time finds it done."""
SAMPLE = 200
BUDGET_S = 30.0
STATEMENT_MS = 5_000
WINDOW_H = 24
_OVERLAP = 1_000
_AMONG = 20_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """One round: how many runs were replayed, how many differed, and the rate of the last day."""

    n_checked: int
    n_differing: int
    rate: Rate


def replay_in_turn() -> Sampled | None:
    """Replay a sample of what ended since the last time, if it is time and nobody else does; None:
    not our turn. Opens the alert ``replay`` while the last day's rate is below the gate
    (``ORCHESTRATOR["REPLAY_GATE_PERCENT"]``), and closes it."""
    turn = duty_rows.take_turn(DUTY, every_s=EVERY_S)
    if turn is None:
        return None
    last = replay_rows.last_event()
    sampled = replay_sample(_sample(turn.notes.get("last_event")))
    duty_rows.note(
        DUTY,
        {
            "last_event": last,
            "checked": sampled.n_checked,
            "differing": sampled.n_differing,
            "percent": round(sampled.rate.percent, 3),
        },
    )
    return sampled


def replay_sample(run_ids: list[UUID]) -> Sampled:
    """Replay these runs, for as long as a round may take, and look at the rate."""
    until = time.monotonic() + BUDGET_S
    checked = list(check_replays(_in_time(run_ids, until)))
    rate = replay_rows.pass_rate(hours=WINDOW_H)
    judge(rate)
    differing = [one for one in checked if one.difference is not None]
    return Sampled(len(checked), len(differing), rate)


def judge(rate: Rate) -> bool:
    """Open or close the alert; True: below the gate."""
    gate = engine_settings().replay_gate_percent
    if rate.percent >= gate:
        alert_rows.close_alert(KIND, KEY)
        return False
    n_differing = rate.n_checked - rate.n_identical
    alert_rows.open_alert(
        KIND,
        KEY,
        title=f"{n_differing} of {rate.n_checked} runs replayed within {WINDOW_H} h came out"
        f" otherwise than recorded ({rate.percent:.4g} % identical, the gate is {gate:g} %)",
        detail={"runs": [str(run_id) for run_id in rate.differing], "runbook": "replay-differs"},
        severity="critical",
        run_id=rate.differing[0] if rate.differing else None,
    )
    return True


def _in_time(run_ids: list[UUID], until: float) -> Iterator[UUID]:
    for run_id in run_ids:
        if time.monotonic() > until:
            return
        yield run_id


def _sample(event: int | None) -> list[UUID]:
    """Of what ended since the last round; of the newest runs when that takes too long to find."""
    if event is not None:
        try:
            with transaction.atomic():
                set_patience(STATEMENT_MS)
                return replay_rows.ended_since(event - _OVERLAP, SAMPLE)
        except OperationalError as error:
            if not ran_out_of_patience(error):
                raise
    return replay_rows.newest_ended(SAMPLE, _AMONG)
