"""The life of one run as its callers and workers see it: acts that may all be done again.

A process may die anywhere in it. The next one does the same acts with the same keys, as a caller
does that got no answer, and lets time pass where a dead worker left something behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connection

from approvals_app import decisions
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import engine
from orchestrator.core.errors import StateConflict
from orchestrator.engine.patience import is_away
from orchestrator.engine.replaying import replay_runs
from orchestrator.models import Effect, Event, Outbox, Run, Step
from orchestrator.models.run import OPEN_STATES
from orchestrator.ops.invariants import check_runs
from tests.drill.arena import turn
from tests.drill.providers import Provider
from tests.engine.carrier import Carrier
from workflows_app.errors import KeyInFlight
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.triggering import start

TENANT = "drill"
CALLER = Principal(tenant=TENANT, actor="service:drill", scopes=ALL_SCOPES)
BOSS = Person(actor="user:boss", roles=frozenset({"finance"}))
OUTSIDE = ("person", "signal", "review")
LEASE_AND_MORE_S = 16.0
ROUNDS = 150
PATIENCE = 60


@dataclass
class Story:
    """One run of a scenario. ``reference`` names its affair at the providers and in all keys."""

    name: str
    reference: str
    keyed: Provider
    keyless: Provider
    patient: bool = False
    run_id: UUID | None = None
    settled_by_hand: int = 0
    carrier: Carrier = field(default_factory=Carrier)

    @property
    def run(self) -> Run:
        """The run as stored."""
        assert self.run_id is not None
        return Run.objects.get(pk=self.run_id)

    def family(self) -> list[UUID]:
        """The run and its descendants."""
        found = [self.run_id]
        for run_id in found:
            found += Run.objects.filter(parent=run_id).values_list("id", flat=True)
        return [run_id for run_id in found if run_id is not None]

    def do(self, act: Callable[[], Any]) -> Any:
        """Do it; with ``patient``, again and again while the database is away, as callers do."""
        for _ in range(PATIENCE if self.patient else 0):
            try:
                return act()
            except (DatabaseError, InterfaceError) as error:
                if not is_away(error):
                    raise
                connection.close()
            except KeyInFlight:  # the call before is not over for PostgreSQL: 409, come again
                time.sleep(0.01)
        return act()

    # -- workers -------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Messages, sweeps and time, until the run is over or waits for somebody outside."""
        for _ in range(ROUNDS):
            while self.carrier.messages:
                self.do(self.carrier.run_one_or_none)
            self.do(engine.beat_once)
            if self.carrier.messages:
                continue
            if self.do(self._rests):
                return
            self.do(lambda: turn(LEASE_AND_MORE_S))
        raise AssertionError(f"the run goes nowhere: {self._where()}")

    def _rests(self) -> bool:
        """Whether nothing but somebody outside can move it."""
        family = self.family()
        if Outbox.objects.filter(run_id__in=family).exists():
            return False
        states = Run.objects.filter(pk__in=family, state__in=OPEN_STATES)
        standing = [(s, w) for s, w in states.values_list("state", "waiting_for") if s != "paused"]
        if not standing:
            return True
        outside = any(s == "waiting" and w in OUTSIDE for s, w in standing)
        return outside and all(s == "waiting" and w in (*OUTSIDE, "child") for s, w in standing)

    def _where(self) -> list[Any]:
        steps = Step.objects.filter(run_id__in=self.family())
        runs = Run.objects.filter(pk__in=self.family()).values_list("state", "waiting_for")
        return [*runs, *steps.values_list("key", "scope", "state", "waiting_for")]

    # -- what is checked -----------------------------------------------------------------------

    def broken_rules(self) -> list[str]:
        """What the invariants find in this family."""
        return [
            f"{v.rule}: {v.step} {v.words}"
            for finding in check_runs(self.family())
            for v in finding.violations
        ]

    def other_histories(self) -> list[str]:
        """Where the history, decided anew, leads elsewhere."""
        return [
            f"replay: {replayed.difference or replayed.unread}"
            for replayed in replay_runs(self.family())
            if not replayed.identical
        ]

    def applied(self, operation: str) -> int:
        """How often the provider's book says that it was applied, for this affair."""
        provider = self.keyed if operation in ("charge", "refund") else self.keyless
        return len(provider.entries(operation, self.reference))

    def fingerprint(self) -> dict[str, Any]:
        """Everything that a late worker must not change. Evidence (attempts) is not in it."""
        family = self.family()
        return {
            "runs": sorted(
                map(
                    str,
                    Run.objects.filter(pk__in=family).values_list(
                        "id", "state", "version", "next_seq", "output"
                    ),
                )
            ),
            "steps": sorted(
                map(
                    str,
                    Step.objects.filter(run_id__in=family).values_list(
                        "run_id", "key", "scope", "state", "fence", "attempt", "output"
                    ),
                )
            ),
            "events": Event.objects.filter(run_id__in=family).count(),
            "effects": sorted(
                map(
                    str,
                    Effect.objects.filter(run_id__in=family).values_list(
                        "idempotency_key", "status", "fence"
                    ),
                )
            ),
        }


Act = Callable[[Story], None]


def begin(story: Story) -> None:
    """Start it by its key, and let it run."""
    body = {"input": {"reference": story.reference}}
    started = story.do(lambda: start(CALLER, story.name, body, key=story.reference))
    story.run_id = started.run_id
    story.go_on()


def begin_only(story: Story) -> None:
    """Start it, and let nobody work on it."""
    body = {"input": {"reference": story.reference}}
    started = story.do(lambda: start(CALLER, story.name, body, key=story.reference))
    story.run_id = started.run_id


def signal(name: str, payload: Any = None) -> Act:
    """Send a signal; the same one again is a no-op."""

    def act(story: Story) -> None:
        sent = story.do(
            lambda: engine.send_signal(
                story.run.pk, name=name, signal_id=story.reference, payload=payload, actor="user:x"
            )
        )
        assert sent.accepted
        story.go_on()

    return act


def decide(choice: str, step: str = "gate") -> Act:
    """Decide the gate; the same person may say the same again."""

    def act(story: Story) -> None:
        newest = Request.objects.filter(run_id=story.run_id, key=step).order_by("-attempt")
        request_id = story.do(lambda: newest.values_list("pk", flat=True)[0])
        body = decisions.parse_body({"decision": choice, "notes": "seen", "data": None})
        story.do(lambda: decisions.decide(request_id, body, tenant=TENANT, person=BOSS))
        story.go_on()

    return act


def _unless(story: Story, states: tuple[str, ...], act: Callable[[], None]) -> None:
    """A caller who repeats a call is told that it is done already."""
    try:
        story.do(act)
    except StateConflict as conflict:
        if conflict.state not in states:
            raise


def cancel(story: Story) -> None:
    """Cancel; cancelled already is as good."""
    over = ("cancelled", "compensating")
    _unless(story, over, lambda: engine.cancel_run(story.run.pk, actor="user:x", reason="drill"))
    story.go_on()


def pause(story: Story) -> None:
    """Pause; paused already, or over, is as good."""
    over = ("paused", "completed")
    _unless(story, over, lambda: engine.pause_run(story.run.pk, actor="user:x", reason="drill"))
    story.go_on()


def resume(story: Story) -> None:
    """Resume; going on already, or over, is as good."""
    over = ("running", "pending", "completed", "waiting")
    _unless(story, over, lambda: engine.resume_run(story.run.pk, actor="user:x", reason="drill"))
    story.go_on()


def repair(action: str, **order: Any) -> Act:
    """One repair, by its token; a repair that was done is answered again."""

    def act(story: Story) -> None:
        def order_it() -> None:
            engine.repair_run(
                story.run.pk,
                action=action,
                reason="drill",
                actor="user:op",
                role="operator",
                token=f"{action} {story.reference}",
                **order,
            )

        story.do(order_it)
        story.go_on()

    return act


def mend(story: Story) -> None:
    """Somebody mends, outside, what made a step fail."""
    if not story.keyless.entries("mend", story.reference):
        story.keyless.act("mend", story.reference)


def settle_doubts(story: Story) -> None:
    """An operator looks up each effect in doubt in the provider's book, and says what is there."""
    for _ in range(10):
        doubts = story.do(lambda: list(_doubts(story)))
        if not doubts:
            return
        for key, operation in doubts:
            entries = story.keyless.entries(operation, story.reference)
            details: Mapping[str, Any] = {"effect_key": key, "outcome": "not_applied"}
            if entries:
                answer = entries[0]["answer"]
                details = {
                    "effect_key": key,
                    "outcome": "applied",
                    "external_ref": answer["external_ref"],
                    "output": answer,
                }
            else:
                story.settled_by_hand += 1
            token = f"{key} {Event.objects.filter(run_id=story.run_id).count()}"
            story.do(
                lambda token=token, details=details: engine.repair_run(
                    story.run.pk,
                    action="settle_effect",
                    reason="looked into the provider's book",
                    actor="user:op",
                    token=token,
                    details=details,
                )
            )
        story.go_on()


def _doubts(story: Story) -> list[tuple[str, str]]:
    waiting = Step.objects.filter(run_id=story.run_id, state="waiting", waiting_for="review")
    open_ones = Effect.objects.filter(
        step_id__in=waiting.values("id"), status__in=("intended", "in_doubt")
    )
    return [(effect.idempotency_key, effect.tool.removeprefix("drill.")) for effect in open_ones]
