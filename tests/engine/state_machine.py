"""Anything that may happen to runs, in any order, over the real engine and its database.

A message is claimed, its body performed and its answer settled by three rules, so that everything
else may come between them. After each rule every invariant is checked; at the end, with no more
bad luck, every run ends or waits for something that has a name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from approvals_app.decisions import decide, parse_body
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import engine
from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient
from orchestrator.conf import engine_settings
from orchestrator.core.admission import Lane
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.engine import steps
from orchestrator.engine.ports import WakeUps
from orchestrator.engine.work import Answer, Work
from orchestrator.models import Effect, Run, Step
from orchestrator.models.rows import RunRow
from orchestrator.ops.invariants import check_runs
from tests.engine import ledger, probes
from tests.engine.ledger import ASKABLE, KEYED, KEYLESS
from tests.engine.runs import TENANT, hook, lose, registered, say, start

ORDER = "${{ input.order }}"
RETRY = {"retry": {"max_retries": 2, "base_delay": "10s"}}
GATE = {"type": "human_gate", "assignees": ["role:finance"], "timeout": "7d"}
ENDS_BY_OTHERS = frozenset({"person", "signal", "review"})


def effect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A step whose key is the order's own."""
    tool = {"type": "tool", "tool": kind, "input": {"amount": 1}, **RETRY}
    return {**tool, "effect": {"key": f"{name}:{ORDER}"}, **more}


DOCUMENTS: dict[str, dict[str, Any]] = {
    "order": {
        "charge": effect(KEYLESS, "charge"),
        "ask": {**GATE, "on_reject": "end", "needs": ["charge"]},
        "book": effect(KEYED, "book", needs=["ask"]),
        "tell": {**hook("told", 1, needs=["book"]), **RETRY},
    },
    "wide": {
        "head": say(1),
        "charge": effect(KEYLESS, "charge", needs=["head"]),
        "left": {**hook("told", 1, needs=["head"], optional=True), **RETRY},
        "pay": effect(ASKABLE, "pay", needs=["head"]),
        "wait": {"type": "wait", "signal": "go", "needs": ["head"], "optional": True},
        "join": say(2, needs=["left", "pay", "wait", "charge"]),
    },
    "loop": {
        "each": {
            **hook("told", "${{ item }}", for_each={"items": [1, 2, 3], "max_parallel": 2}),
            **RETRY,
        },
        "again": {
            **hook("told", True, needs=["each"]),
            **RETRY,
            "repeat": {"until": "output == true", "max": 3, "delay": "1m"},
        },
    },
    "undone": {
        "take": effect(
            KEYED,
            "take",
            compensate={
                "tool": KEYED,
                "input": {"amount": 1},
                "effect": {"key": f"give:{ORDER}"},
            },
        ),
        "fragile": {**hook("told", 1, needs=["take"]), **RETRY},
    },
}
CHOICES = ("approve", "approve", "reject")
BODIES = ("ok", "transient", "permanent", "limited", "other")
LUCK = ("", "", "", "dies", "stops", "lost", "again", *ledger.FAULTS)
NAMES = st.sampled_from(sorted(DOCUMENTS))
PICK = st.integers(0, 9)
_orders = itertools.count(1)


@dataclass(eq=False)
class Attempt:
    """A claim in a worker's hands; ``answer`` once its body has run."""

    work: Work
    answer: Answer | None = None


@dataclass(frozen=True)
class Message:
    run_id: UUID
    key: str
    scope: str


class Loose:
    """A dispatcher whose messages lie about until somebody takes one, in any order."""

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.sent: list[Message] = []

    def dispatch(self, run: RunRow, workflow: CompiledWorkflow, refs: Sequence[Ref]) -> None:
        for ref in refs:
            scope = "" if ref.item is None else f"[{ref.item}]"
            message = Message(run.id, workflow.steps[ref.position].key, scope)
            self.waiting.append(message)
            self.sent.append(message)

    def dispatch_all(self, orders: Sequence[WakeUps]) -> None:
        """Each run's by itself."""
        for run, workflow, refs in orders:
            self.dispatch(run, workflow, refs)

    def dispatch_after(
        self,
        commit: Callable[[], None],
        run: RunRow,
        workflow: CompiledWorkflow,
        refs: Sequence[Ref],
    ) -> None:
        commit()
        self.dispatch(run, workflow, refs)

    def depth(self, queue: str) -> int:
        return len(self.waiting)


class EngineMachine(RuleBasedStateMachine):
    """``turn`` turns the database's clock."""

    def __init__(self, turn: Any) -> None:
        super().__init__()
        self.turn = turn
        self.post = Loose()
        self.attempts: list[Attempt] = []
        self.dead: list[Attempt] = []
        self.runs: list[UUID] = []
        self.over: dict[UUID, str] = {}
        self.body, self.fault = "ok", ""
        probes.forget()
        ledger.forget()
        probes.hooks["told"] = self._told
        engine.set_dispatcher(self.post)

    # -- what tests choose from --------------------------------------------------------------------

    def _told(self, ctx: ToolContext) -> None:
        match self.body:
            case "transient":
                raise Transient("not now")
            case "permanent":
                raise Permanent("never")
            case "limited":
                raise RateLimited("later", retry_after=30)
            case "other":
                raise LookupError("boom")

    def _run(self, pick: int) -> UUID:
        return self.runs[pick % len(self.runs)]

    def _attempt(self, pick: int, *, performed: bool) -> Attempt | None:
        fitting = [a for a in self.attempts if (a.answer is not None) is performed]
        return fitting[pick % len(fitting)] if fitting else None

    def _try(self, act: Any) -> Any:
        """What the engine refuses in its own words is an answer; anything else is a defect."""
        try:
            return act()
        except OrchestratorError:
            return None

    # -- rules: runs and workers -------------------------------------------------------------------

    @initialize(names=st.lists(NAMES, min_size=2, max_size=2))
    def starts_two(self, names: list[str]) -> None:
        for name in names:
            self.starts(name)

    @precondition(lambda self: len(self.runs) < 4)
    @rule(name=NAMES)
    def starts(self, name: str) -> None:
        blueprint = registered(DOCUMENTS[name], max_parallel=3, timeout="30d")
        self.runs.append(start(blueprint, {"order": next(_orders)}))

    # Rules for work with its luck: hypothesis leaves some rules out of each example, and without
    # work there is little to disturb.

    @rule(
        script=st.lists(st.sampled_from(LUCK), min_size=2, max_size=10),
        body=st.sampled_from(BODIES),
    )
    def works(self, script: list[str], body: str) -> None:
        for luck in script:
            self._meet(luck)
            self._do_one(body)

    @rule(
        script=st.lists(st.sampled_from(LUCK), min_size=4, max_size=12),
        seconds=st.sampled_from((31, 61)),
    )
    def works_after_a_while(self, script: list[str], seconds: int) -> None:
        """Whatever waited for its back-off, for a message, or for a lease to end, goes on."""
        self.turn(seconds)
        self.leases_of_the_dead_end()
        self.works(script, "ok")

    def _meet(self, luck: str) -> None:
        if luck in ledger.FAULTS:
            self.fault = luck
        elif luck:
            self.meets_bad_luck(0, luck)

    @precondition(lambda self: self.post.waiting)
    @rule(pick=PICK)
    def claims(self, pick: int) -> None:
        self._claim(self.post.waiting.pop(pick % len(self.post.waiting)))

    def _claim(self, message: Message) -> None:
        order = engine.Order(run_id=message.run_id, key=message.key, scope=message.scope)
        work = steps.claim(order)
        if work is not None:
            self.attempts.append(Attempt(work))

    @precondition(lambda self: self._attempt(0, performed=False))
    @rule(
        pick=PICK,
        body=st.sampled_from(BODIES),
        fault=st.sampled_from(("", "", *ledger.FAULTS)),
    )
    def performs(self, pick: int, body: str, fault: str) -> None:
        attempt = self._attempt(pick, performed=False)
        assert attempt is not None
        work = attempt.work
        if work.is_stale(engine_settings().lease):
            self.attempts.remove(attempt)
            return
        self.body = body
        ledger.faults.clear()
        if fault:
            ledger.next_fault(fault)
        try:
            attempt.answer = steps._perform(work)
            if attempt.answer is None:  # it stood still
                self.attempts.remove(attempt)
        except probes.Killed:
            self._dies(attempt)

    @precondition(lambda self: self._attempt(0, performed=True))
    @rule(pick=PICK, goes_on=st.booleans())
    def settles(self, pick: int, goes_on: bool) -> None:
        attempt = self._attempt(pick, performed=True)
        assert attempt is not None
        assert attempt.answer is not None
        self.attempts.remove(attempt)
        lane = Lane(queue=attempt.work.step.queue, takes_next=goes_on)
        step = Step.objects.filter(pk=attempt.work.row.id)
        before = step.values("fence", "state", "attempt", "output").get()
        more = steps.settle(attempt.work, attempt.answer, lane)
        if before["fence"] != attempt.work.row.fence:
            assert step.values("fence", "state", "attempt", "output").get() == before
        if more is not None:
            self.attempts.append(Attempt(more))

    # -- rules: bad luck ---------------------------------------------------------------------------

    @rule(pick=st.integers(0, 99), kind=st.sampled_from(("dies", "stops", "lost", "again")))
    def meets_bad_luck(self, pick: int, kind: str) -> None:
        match kind:
            case "dies" if self.attempts:
                self._dies(self.attempts[pick % len(self.attempts)])
            case "stops" if self.attempts:
                self._stops(self.attempts[pick % len(self.attempts)])
            case "lost" if self.post.waiting:
                self.post.waiting.pop(pick % len(self.post.waiting))
            case "again" if self.post.sent:
                self.post.waiting.append(self.post.sent[-1 - pick % len(self.post.sent)])

    def _dies(self, attempt: Attempt) -> None:
        self.attempts.remove(attempt)
        self.dead.append(attempt)

    def _stops(self, attempt: Attempt) -> None:
        """SIGSTOP past its lease: what it does when it goes on is late, or begins nothing. Another
        worker has taken the step over by then, where there is one."""
        attempt.work.asked_at -= 3600
        self._end_lease(attempt.work.run.id, attempt.work.row)
        engine.beat_once()
        if self.post.waiting:
            self._claim(self.post.waiting.pop())

    def _end_lease(self, run_id: UUID, row: Any) -> None:
        held = Step.objects.filter(run_id=run_id, key=row.key, scope=row.scope, fence=row.fence)
        if held.filter(state="running").exists():
            lose(run_id, row.key, row.scope)

    @precondition(lambda self: self.dead)
    @rule()
    def leases_of_the_dead_end(self) -> None:
        for attempt in self.dead:
            self._end_lease(attempt.work.run.id, attempt.work.row)
        self.dead.clear()
        engine.beat_once()

    @rule()
    def sweeps(self) -> None:
        assert engine.beat_once().failed == []

    @rule(seconds=st.sampled_from((1, 400, 90_000)))
    def time_passes(self, seconds: int) -> None:
        self.turn(seconds)

    # -- rules: people -----------------------------------------------------------------------------

    @rule(pick=PICK, number=st.integers(1, 2), payload=st.integers(1, 2))
    def signals(self, pick: int, number: int, payload: int) -> None:
        """Early, late, doubled, or the same id with another payload."""
        words = {"name": "go", "signal_id": f"{number}", "payload": payload, "actor": "user:me"}
        self._try(lambda: engine.send_signal(self._run(pick), **words))

    @rule(pick=PICK, choice=st.sampled_from(CHOICES), who=st.integers(1, 2))
    def decides(self, pick: int, choice: str, who: int) -> None:
        asked = list(Request.objects.filter(run_id__in=self.runs).order_by("-state", "pk"))
        if asked:
            request = asked[pick % len(asked)]
            person = Person(actor=f"user:{who}", roles=frozenset({"finance"}))
            body = parse_body({"decision": choice})
            self._try(lambda: decide(request.pk, body, tenant=TENANT, person=person))

    @rule(pick=PICK, word=st.sampled_from(("pause", "resume", "resume", "cancel")))
    def controls(self, pick: int, word: str) -> None:
        act = getattr(engine, f"{word}_run")
        self._try(lambda: act(self._run(pick), actor="user:op", reason="because"))

    @rule(
        pick=PICK,
        action=st.sampled_from(("retry_step", "skip_step", "resume")),
        step=PICK,
        preview=st.sampled_from((False, False, True)),
    )
    def repairs(self, pick: int, action: str, step: int, preview: bool) -> None:
        failed = [run_id for run_id, state in self.over.items() if state == "failed"]
        run_id = failed[pick % len(failed)] if failed and pick else self._run(pick)
        found = Step.objects.filter(run_id=run_id, scope="").order_by("key")
        keys = list(found.filter(state="failed")) or list(found)
        if not keys:
            return
        key = keys[step % len(keys)].key
        if self._repair(run_id, action=action, step=key, preview=preview) and not preview:
            self.over.pop(run_id, None)

    def _repair(self, run_id: UUID, **order: Any) -> Any:
        given = {"reason": "mended", "actor": "user:op", "token": str(uuid4()), **order}
        return self._try(lambda: engine.repair_run(run_id, **given))

    @precondition(lambda self: ledger.sent)
    @rule(pick=PICK)
    def settles_an_effect(self, pick: int) -> None:
        self._ask_the_books(self._run(pick))

    def _ask_the_books(self, run_id: UUID) -> None:
        """The operator says what the provider's ledger says."""
        for found in Effect.objects.filter(run_id=run_id, status__in=("intended", "in_doubt")):
            key = found.idempotency_key
            outcome = "applied" if ledger.done[key] else "not_applied"
            details = {"effect_key": key, "outcome": outcome, "external_ref": f"R:{key}"}
            self._repair(run_id, action="settle_effect", details=details)

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def every_stored_run_is_sound(self) -> None:
        broken = [v for finding in check_runs(self.runs) for v in finding.violations]
        assert not broken, broken

    @invariant()
    def what_is_over_stays_over(self) -> None:
        ends = {str(state) for state in RUN_TERMINAL}
        now = dict(Run.objects.filter(pk__in=self.runs).values_list("pk", "state"))
        for run_id, state in self.over.items():
            assert now[run_id] == state
        self.over = {run_id: state for run_id, state in now.items() if state in ends}

    @invariant()
    def no_effect_happens_twice(self) -> None:
        twice = {key: count for key, count in ledger.done.items() if count > 1}
        assert not twice, twice

    # -- and in the end ----------------------------------------------------------------------------

    def teardown(self) -> None:
        """No more bad luck: what is left ends, or waits for somebody who has a name."""
        self.fault = ""
        self._come_to_rest()
        for run in Run.objects.filter(pk__in=self.runs).open():
            event(f"rests {run.state} {run.waiting_for}")
            waits = run.state == "waiting" and run.waiting_for in ENDS_BY_OTHERS
            assert waits or run.state == "paused", (run.pk, run.state, run.waiting_for)
        self._end_the_rest()
        for state in Run.objects.filter(pk__in=self.runs).values_list("state", flat=True):
            event(f"ends {state}")
        self.every_stored_run_is_sound()
        self.no_effect_happens_twice()

    def _end_the_rest(self) -> None:
        """Whatever still waits can be ended by people: nothing is stuck."""
        for _ in range(5):
            left = list(Run.objects.filter(pk__in=self.runs).open())
            if not left:
                return
            for run in left:
                self._try(lambda run=run: engine.resume_run(run.pk, actor="me", reason=""))
                self._ask_the_books(run.pk)
                self._try(lambda run=run: engine.cancel_run(run.pk, actor="me", reason=""))
            self._come_to_rest()
        raise AssertionError([(r.pk, r.state, r.waiting_for) for r in left])

    def _come_to_rest(self) -> None:
        self.leases_of_the_dead_end()
        for _ in range(60):
            for _ in range(500):
                if not (self.attempts or self.post.waiting):
                    break
                self._do_one()
            else:
                raise AssertionError(f"messages without end: {self.post.waiting}")
            done = engine.beat_once().done
            if self.post.waiting or any(done.values()):
                continue
            self.turn(130)
            if not any(engine.beat_once().done.values()) and not self.post.waiting:
                return
        raise AssertionError("it never comes to rest")

    def _do_one(self, body: str = "ok") -> None:
        if self._attempt(0, performed=True) is not None:
            self.settles(0, True)
        elif self._attempt(0, performed=False) is not None:
            fault, self.fault = self.fault, ""
            self.performs(0, body, fault)
        elif self.post.waiting:
            self._claim(self.post.waiting.pop(0))
