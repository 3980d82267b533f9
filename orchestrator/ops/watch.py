"""The watch: orphans, stuck runs and what waits for a person, told as alerts within a minute.

Level-triggered, bounded in rows and time, and reading only but for the alerts. Whichever process
has the turn looks: each ``manage.py pulse`` asks for it, and beat's tick as the second path.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import OperationalError

from orchestrator.crash import Unit
from orchestrator.models import alert_rows, duty_rows
from orchestrator.ops import orphan_rules, trouble_rules
from orchestrator.ops.alerting import close_cured, raise_alerts
from orchestrator.ops.orphan_rules import ORPHANS, START, STUCK, Place, Rule
from orchestrator.ops.patience import (
    avoid_whole_tables,
    ran_out_of_patience,
    set_patience,
)
from orchestrator.ops.ready_rule import undispatched
from orchestrator.ops.sighting import Sighting

logger = logging.getLogger(__name__)

DUTY = "watch"
EVERY_S = 15.0
AWAY_S = 45.0
"""Whoever was away for longer gives the sweeps a round first: what is late then is only late."""
LAP_S = 1.0
"""Time that one round spends walking over waiting steps, and over open runs; what is left is the
next round's. A slice of 10,000 rows takes about 0.1 s (measured with 200,000 runs)."""
SLICE = 10_000
STATEMENT_MS = 2_000
AGAIN = 500
"""Open alerts of one kind that a round looks at again, those first that waited longest."""

_TROUBLES: tuple[tuple[str, Callable[[], list[Sighting]]], ...] = (
    ("dead_letter", trouble_rules.dead_letters),
    ("compensation", trouble_rules.not_undone),
    ("in_doubt", trouble_rules.in_doubt),
)


@dataclass(slots=True)
class Look:
    """What one look did. ``skipped`` names what took too long and is left to the next look."""

    opened: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What the duty's row keeps of it."""
        return {
            "opened": self.opened,
            "closed": self.closed,
            "skipped": self.skipped,
            "places": self.places,
        }


def look_in_turn() -> Look | None:
    """Look around if it is time and nobody else does; None: not our turn."""
    turn = duty_rows.take_turn(DUTY, every_s=EVERY_S)
    if turn is None:
        return None
    places = {name: (str(a), str(b)) for name, (a, b) in turn.notes.get("places", {}).items()}
    back = turn.since_s is None or turn.since_s > AWAY_S
    look = look_around(places, orphans=not back)
    duty_rows.note(DUTY, look.as_json())
    return look


def look_around(places: dict[str, Place] | None = None, *, orphans: bool = True) -> Look:
    """Look now, whoever's turn it is. ``places``: where the walks of the last look stopped."""
    look = Look(places=dict(places or {}))
    if orphans:
        _look_for("orphan", ORPHANS, look)
        _look_for("stuck", (STUCK,), look)
    for kind, find in _TROUBLES:
        with _patiently(kind, look):
            _take_in_whole(kind, find(), look)
    return look


def _look_for(kind: str, rules: tuple[Rule, ...], look: Look) -> None:
    """New sightings first, then whether the old ones are cured."""
    found: list[Sighting] = []
    for rule in rules:
        with _patiently(rule.name, look):
            found += _walk(rule, look) if rule.sliced else orphan_rules.find(rule)
    if kind == "orphan":
        with _patiently("not_dispatched", look):
            found += undispatched()
    fresh = _fresh(kind, found)
    look.opened[kind] = raise_alerts(kind, fresh)
    with _patiently(f"{kind} again", look):
        _look_again(kind, rules, look, {one.key for one in fresh})


def _fresh(kind: str, found: list[Sighting]) -> list[Sighting]:
    """Those that have no open alert; the others are looked at again anyway."""
    known = alert_rows.still_open(kind, [one.key for one in found]) if found else set()
    return [one for one in found if one.key not in known]


def _look_again(kind: str, rules: tuple[Rule, ...], look: Look, fresh: set[str]) -> None:
    """Look at the runs of older alerts: count what still is so, close what is cured."""
    known = [alert for alert in alert_rows.open_alerts(kind, AGAIN) if alert.key not in fresh]
    runs = list({alert.run_id for alert in known if alert.run_id is not None})
    if not known:
        return
    still = [one for rule in rules for one in orphan_rules.find_again(rule, runs)]
    if kind == "orphan":
        still += undispatched(runs)
    raise_alerts(kind, [one for one in still if one.key not in fresh])
    look.closed[kind] = close_cured(kind, [alert.key for alert in known], still)


def _take_in_whole(kind: str, found: list[Sighting], look: Look) -> None:
    """For kinds that one statement answers whole: what is not found any more is cured."""
    look.opened[kind] = raise_alerts(kind, found)
    if len(found) < trouble_rules.MAX_FOUND:
        known = [alert.key for alert in alert_rows.open_alerts(kind, AGAIN)]
        look.closed[kind] = close_cured(kind, known, found)


def _walk(rule: Rule, look: Look) -> list[Sighting]:
    """Slice after slice from where the last look stopped, once around or until time is over."""
    found: list[Sighting] = []
    begin = here = look.places.get(rule.name, START)
    give_up_at = time.monotonic() + LAP_S
    around = begin == START
    while time.monotonic() < give_up_at:
        end = orphan_rules.find_bound(rule.sliced, here, SLICE)
        found += orphan_rules.find_in_slice(rule, here, end)
        here = START if end is None else end
        if end is None and around:
            break
        around = around or end is None
        if around and here >= begin != START:
            break
    look.places[rule.name] = here
    return found


@contextmanager
def _patiently(what: str, look: Look) -> Iterator[None]:
    """A statement that takes too long is given up for this round; the others go on."""
    try:
        with Unit("watch.look"):
            set_patience(STATEMENT_MS)
            avoid_whole_tables()
            yield
    except OperationalError as error:
        if not ran_out_of_patience(error):
            raise
        logger.warning("the watch gave up on %s after %s ms", what, STATEMENT_MS)
        look.skipped.append(what)
