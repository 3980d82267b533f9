"""Many runs of mixed shapes under way while everything around them is hurt."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection

from orchestrator import engine
from orchestrator.models import Run
from tests.chaos import checks, shapes
from tests.chaos.monkeys import ALL, Monkey
from tests.chaos.processes import EVERYTHING, World, tail
from tests.chaos.shapes import TENANT, Input, Shape
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.triggering import start

CALLER = Principal(tenant=TENANT, actor="service:chaos", scopes=ALL_SCOPES)
FLEET = (*EVERYTHING, "beat", "beat")
OVER = ("completed", "failed", "cancelled", "timed_out")
STEP_S = 0.2
PLACES = 3  # bodies that run at a time, about; BODIES: of a run, on average
BODIES = 6.5
CALM_S = 10.0
QUIET_S = 10.0
QUARANTINED = "(a step lost three workers: quarantined)"
STARTS = 0.2  # of the storm, in which the runs are started; then all are under way

Answer = TypeVar("Answer")


@dataclass
class Order:
    """A run that a caller wants: acknowledged once it has an id."""

    number: int
    shape: Shape
    input: Input
    run_id: UUID | None = None
    signalled: bool = False


@dataclass
class Storm:
    """A storm over ``runs`` runs. ``stuck_s``: no progress for so long is a failure."""

    world: World
    runs: int
    seed: int
    lasts_s: float
    every_s: float
    monkeys: Sequence[Monkey] = ALL
    stuck_s: float = 60.0
    read_url: str | None = None
    say: Callable[[str], None] = lambda _: None
    done: Counter[str] = field(default_factory=Counter)
    outages: int = 0
    states: dict[UUID, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.orders = [self._order(number) for number in range(self.runs)]

    def _order(self, number: int) -> Order:
        shape = shapes.ALL[number % len(shapes.ALL)]
        return Order(number, shape, shapes.some_input(self.rng, self._pace_ms()))

    def _pace_ms(self) -> int:
        """How long a body must take for the work to last as long as the storm."""
        return round(1000 * self.lasts_s * PLACES / (self.runs * BODIES))

    def blow(self) -> None:
        """Start the runs, hurt what there is until the storm is over, wait for every end.

        Fills ``lost`` (acknowledged, but not stored) and ``failures`` (did not end, or not as it
        should); empty when all is as promised. What the database says is asked by ``checks``.
        """
        self.world.fleet.start_ready(FLEET, read_url=self.read_url)
        shapes.publish_shapes(*shapes.ALL)
        self._began = time.monotonic()
        self._moved_at, self._seen, self._said_at = self._began, -1, self._began
        next_monkey, plan = self._began + self.every_s, self._plan()
        while not self._is_over():
            now = time.monotonic()
            self._start_due((now - self._began) / self.lasts_s)
            if now >= next_monkey and (now - self._began < self.lasts_s or plan):
                self._let_loose(plan.pop() if plan else self.rng.choice(self.monkeys))
                next_monkey = time.monotonic() + self.every_s * self.rng.uniform(0.5, 1.5)
            self._revive()
            if not self._watch():
                return
            if now - self._said_at > QUIET_S:
                self._tell("")
            self.world.fleet.listen(STEP_S)
        self._revive()
        self._go_on()
        self._judge()

    def _plan(self) -> list[Monkey]:
        """Every monkey once, in the seed's order; by chance after that."""
        plan = list(self.monkeys)
        self.rng.shuffle(plan)
        return plan

    def _let_loose(self, monkey: Monkey) -> None:
        name = monkey.__name__.replace("_", " ")
        self._tell(name)
        monkey(self.world, self.rng)
        self.done[name] += 1

    def _tell(self, what: str) -> None:
        self._said_at = time.monotonic()
        self.say(what)

    def _revive(self) -> None:
        """What the stack's supervisor does: a part that has ended is started again."""
        for part in set(FLEET):
            for _ in range(FLEET.count(part) - len(self.world.fleet.alive(part))):
                self.world.fleet.start(part, read_url=self.read_url)

    def _go_on(self) -> None:
        """After the storm every worker consumes again: new runs over all queues end soon."""
        self.world.fleet.await_ready([p for p in self.world.fleet.alive() if p.part != "pulse"])
        later = [
            Order(self.runs + n, shape, shapes.some_input(self.rng, 0))
            for n, shape in enumerate((shapes.CHAIN, shapes.FAN, shapes.PARENT))
        ]
        self.orders += later
        until = time.monotonic() + CALM_S
        while not self._is_over():
            if time.monotonic() > until:
                self.failures.append(f"not over {CALM_S:.0f} s after the storm: {self._open()}")
                return
            self._start_due(1)
            self._watch()
            self.world.fleet.listen(STEP_S)

    # -- the callers ------------------------------------------------------------------------------
    def _start_due(self, share: float) -> None:
        """Start the orders that are due by now, and say to the waiting ones what they wait for."""
        due = len(self.orders) if share >= 1 else int(self.runs * share / STARTS) + 4
        for order in self.orders[:due]:
            if order.run_id is None:
                self._call(lambda order=order: self._start(order))
            elif order.shape.signal and not order.signalled and self.rng.random() < 0.3:
                self._call(lambda order=order: self._signal(order))

    def _start(self, order: Order) -> None:
        """With an idempotency key: an answer that was lost is asked for again, one run is made."""
        key = f"order-{order.number}"
        order.run_id = start(CALLER, order.shape.name, {"input": order.input}, key=key).run_id

    def _signal(self, order: Order) -> None:
        assert order.run_id is not None
        assert order.shape.signal is not None
        payload = {"value": order.input["value"] * 2}
        sent = engine.send_signal(
            order.run_id, name=order.shape.signal, signal_id="one", payload=payload, actor="chaos"
        )
        order.signalled = sent.accepted

    def _call(self, act: Callable[[], Answer]) -> Answer | None:
        """One call of a client; a database that is away means: later, the same again."""
        try:
            connection.close_if_unusable_or_obsolete()
            return act()
        except (OperationalError, InterfaceError):
            self.outages += 1
            connection.close()
            return None

    # -- watching ---------------------------------------------------------------------------------
    def _is_over(self) -> bool:
        return all(self.states.get(order.run_id) in OVER for order in self.orders if order) and all(
            order.run_id for order in self.orders
        )

    def _watch(self) -> bool:
        """Look at the runs; False when nothing has moved for too long."""

        def look() -> int:
            found = Run.objects.values_list("id", "state", "version")
            rows = list(found)
            self.states = {run_id: state for run_id, state, _ in rows}
            return sum(version for _, _, version in rows)

        seen = self._call(look)
        now = time.monotonic()
        if seen is not None and seen != self._seen:
            self._seen, self._moved_at = seen, now
        if now - self._moved_at > self.stuck_s:
            self.failures.append(f"nothing has moved for {self.stuck_s:.0f} s: {self._open()}")
            return False
        return True

    def _open(self) -> str:
        lines = [
            f"{run.workflow} {run.id} {run.state} {run.waiting_for}: "
            + ", ".join(f"{s.key}{s.scope} {s.state} n={s.n_dispatched}" for s in run.steps.all())
            for run in Run.objects.exclude(state__in=OVER)[:10]
        ]
        with self.world.redis() as client:
            lines.append(str({key: client.type(key) for key in client.keys("*")}))
        return "\n".join([*lines, tail(self.world.fleet.logs)])

    def progress(self) -> dict[str, int]:
        """How many runs were acknowledged, how many have ended."""
        over = sum(state in OVER for state in self.states.values())
        return {
            "started": sum(order.run_id is not None for order in self.orders),
            "ended": over,
            "open": len(self.states) - over,
        }

    # -- judging ----------------------------------------------------------------------------------
    def _judge(self) -> None:
        connection.close_if_unusable_or_obsolete()
        self._drain()
        for order in self.orders:
            if wrong := self._wrong(order):
                self.failures.append(f"{order.shape.name} {order.run_id}: {wrong}")
        self._count_runs()

    def _drain(self) -> None:
        """The sweeps finish telling parents and subscribers what has happened."""
        until = time.monotonic() + 15
        while time.monotonic() < until and checks.count("SELECT count(*) FROM orchestrator_outbox"):
            self.world.fleet.listen(STEP_S)

    def _wrong(self, order: Order) -> str:
        run = Run.objects.filter(pk=order.run_id).first()
        if run is None:
            self.lost.append(f"{order.shape.name} {order.run_id} was acknowledged and is lost")
            return ""
        if run.state != order.shape.state:
            if run.state == "failed" and _was_quarantined(run):
                self.done[QUARANTINED] += 1
                return ""
            return f"is {run.state}, not {order.shape.state}: {run.error}"
        wanted = order.shape.expected(order.input)
        if wanted is not None and run.output != wanted:
            return f"gave {run.output}, not {wanted}"
        return ""

    def _count_runs(self) -> None:
        wanted = len(self.orders) + sum(order.shape.children for order in self.orders)
        stored = Run.objects.count()
        if stored > wanted or (stored < wanted and not self.done_quarantined):
            self.failures.append(f"{stored} runs are stored, {wanted} were asked for")

    @property
    def done_quarantined(self) -> int:
        """How many runs ended early since one of their steps lost three workers."""
        return self.done[QUARANTINED]

    def facts(self) -> dict[str, int]:
        """Figures for the table."""
        ask = checks.count
        attempt = "SELECT count(*) FROM orchestrator_attempt WHERE outcome = %s"
        return {
            "bodies run": ask("SELECT count(*) FROM chaos_ledger"),
            "attempts in the ledger": ask(
                "SELECT count(DISTINCT (run, step, scope, fence)) FROM chaos_ledger"
            ),
            "steps completed": ask(
                "SELECT count(*) FROM orchestrator_event WHERE type = 'step.completed'"
            ),
            "attempts lost with their worker": ask(attempt, ["worker_lost"]),
            "late results kept as evidence": ask(attempt, ["late"]),
            "retries after failures": ask(attempt, ["retrying"]),
            "calls that met no database": self.outages,
        }


def _was_quarantined(run: Run) -> bool:
    """Whether three workers were lost with one step of the run or of its child, as promised."""
    return (
        checks.count(
            "SELECT count(*) FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
            " WHERE (r.id = %s OR r.parent_id = %s) AND s.n_lost >= 3",
            [run.pk, run.pk],
        )
        > 0
    )
