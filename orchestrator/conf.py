"""The engine's settings, typed, with their defaults; read from ``settings.ORCHESTRATOR``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from orchestrator.core.breaker import BreakerPolicy
from orchestrator.core.durations import parse_duration
from orchestrator.core.routing import QueueRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Measures of the engine. ``fuse`` False: every step is a message of its own.
    ``after_restore``: an effect that is unknown here may have happened after the backup, so it is
    in doubt from the first call on.

    A fused stretch gives way after ``stretch_steps`` steps or ``stretch_time``; when others wait
    on the queue, after ``stretch_polite`` and ``polite_steps`` (giving way costs a message, a
    claim and a commit, so it is not done every other step). ``effect_retention`` None: receipts,
    and with them their keys, are kept for ever.
    """

    fuse: bool = True
    after_restore: bool = False
    lease: timedelta = timedelta(seconds=15)
    renew_every: timedelta = timedelta(seconds=5)
    stretch_steps: int = 50
    stretch_time: timedelta = timedelta(milliseconds=200)
    stretch_polite: timedelta = timedelta(milliseconds=20)
    polite_steps: int = 10
    stale_after: timedelta = timedelta(seconds=2)
    gates_fresh: timedelta = timedelta(seconds=1)
    max_depth_of_queue: int = 1000
    queue_routes: tuple[QueueRoute, ...] = ()
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    effect_retention: timedelta | None = None
    max_depth: int = 8
    max_items: int = 10_000
    replay_gate_percent: float = 100.0
    subscribers: Mapping[str, list[str]] = field(default_factory=dict)


@lru_cache(maxsize=1)
def engine_settings() -> EngineSettings:
    """The settings in force; cached until the settings change (tests)."""
    given: Mapping[str, Any] = getattr(settings, "ORCHESTRATOR", {})
    return EngineSettings(
        fuse=bool(given.get("FUSE", True)),
        after_restore=bool(given.get("AFTER_RESTORE", False)),
        lease=timedelta(seconds=given.get("LEASE_SECONDS", 15)),
        renew_every=timedelta(seconds=given.get("RENEW_SECONDS", 5)),
        stale_after=timedelta(seconds=given.get("STALE_SECONDS", 2)),
        max_depth_of_queue=int(given.get("QUEUE_BOUND", 1000)),
        queue_routes=tuple(QueueRoute(**rule) for rule in given.get("QUEUE_ROUTES", ())),
        breaker=BreakerPolicy(**given.get("BREAKER", {})),
        gates_fresh=timedelta(seconds=given.get("GATES_SECONDS", 1)),
        effect_retention=_duration(given.get("EFFECT_RETENTION")),
        max_depth=int(given.get("MAX_DEPTH", 8)),
        max_items=int(given.get("MAX_ITEMS", 10_000)),
        replay_gate_percent=float(given.get("REPLAY_GATE_PERCENT", 100)),
        subscribers=dict(given.get("SUBSCRIBERS", {})),
    )


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else parse_duration(text)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "ORCHESTRATOR":
        engine_settings.cache_clear()


setting_changed.connect(_forget)
