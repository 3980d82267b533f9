"""From one world to the next: everything that can happen, each as one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.effects import Course, EffectStatus, StoredEffect, course
from orchestrator.core.outcomes import Succeeded
from orchestrator.engine.effects import Answered
from tests.drill.model.planner import Decided, Planner
from tests.drill.model.provider import ANSWER, KEYED, REQUEST, Engine
from tests.drill.model.state import TERMINAL, Effect, Guards, Left, Row, Worker, World

MAX_MAIL = 3
STEPS = "ab"
OPEN = (EffectStatus.INTENDED, EffectStatus.IN_DOUBT)


class Next(NamedTuple):
    """What happened, in words, and the world after it. ``chance``: it may as well never happen,
    so no promise may rest on it."""

    words: str
    world: World
    chance: bool = False


class Machine:
    """One workflow against one kind of provider, with its guards."""

    def __init__(self, workflow: CompiledWorkflow, tool: str, guards: Guards) -> None:
        self.workflow, self.tool, self.guards = workflow, tool, guards
        self.planner, self.engine = Planner(workflow), Engine(workflow)

    def first(self, left: Left) -> World:
        born = self.planner.begin()
        world = World(
            snapshot=born.snapshot,
            run=born.run,
            waiting=born.waiting,
            rows=(Row(), Row()),
            effect=Effect(),
            done=0,
            open_send=False,
            workers=(None, None),
            mail=(0, 0),
            left=left,
        )
        return self._sent(world, born)

    def nexts(self, world: World) -> Iterator[Next]:
        for found in self._all(world):
            yield found._replace(world=self._judged(world, found.world))

    def _all(self, world: World) -> Iterator[Next]:
        yield from self._messages(world)
        for place, worker in enumerate(world.workers):
            if worker is not None:
                yield from self._work(world, place, worker)
        yield from self._sweeps(world)
        yield from self._people(world)

    # -- messages ----------------------------------------------------------------------------------

    def _messages(self, world: World) -> Iterator[Next]:
        left = world.left
        idle = None in world.workers
        for step, count in enumerate(world.mail):
            if not count:
                continue
            fewer = world._replace(mail=_set(world.mail, step, count - 1))
            if idle:
                yield Next(*self._claim(fewer, step))
            if left.losses:
                lost = fewer._replace(left=left._replace(losses=left.losses - 1))
                yield Next(f"the message for {STEPS[step]} is lost", lost, chance=True)
            if left.doubles and count < MAX_MAIL:
                more = world._replace(
                    mail=_set(world.mail, step, count + 1),
                    left=left._replace(doubles=left.doubles - 1),
                )
                yield Next(f"the message for {STEPS[step]} is doubled", more, chance=True)

    def _claim(self, world: World, step: int) -> tuple[str, World]:
        name = STEPS[step]
        decided = None
        if world.run not in TERMINAL and self._state(world, step) == "ready":
            decided = self.planner.act(world.snapshot, "claim", step)
        if decided is None:
            return f"a message for {name} finds nothing to do", world
        row = world.rows[step]
        row = row._replace(fence=row.fence + 1)
        way = self._course(world, step)
        effect = world.effect
        if self.guards.intent and way in (Course.CALL, Course.DOUBT):
            status = effect.status if way is Course.DOUBT else str(EffectStatus.INTENDED)
            effect = Effect(status, step, row.fence)
        world = self._sent(world._replace(rows=_set(world.rows, step, row), effect=effect), decided)
        worker = Worker(step, row.fence, str(way))
        place = world.workers.index(None)
        words = f"worker {place + 1} claims {name} with fence {row.fence} ({way})"
        return words, world._replace(workers=_set(world.workers, place, worker))

    def _course(self, world: World, step: int) -> Course:
        effect = world.effect
        if not effect.status:
            return course(None, REQUEST)
        holder, state = effect.holder, self._state(world, effect.holder)
        calls = state == "running" and effect.fence == world.rows[holder].fence
        busy = holder != step and (calls or state == "waiting")
        stored = StoredEffect(
            status=EffectStatus(effect.status), request_hash=REQUEST, response=ANSWER, busy=busy
        )
        found = course(stored, REQUEST)
        forgets = found is Course.FOUND and not self.guards.receipt_check
        is_blind = found is Course.DOUBT and not self.guards.no_blind_retry
        return Course.CALL if forgets or is_blind else found

    # -- a worker ----------------------------------------------------------------------------------

    def _work(self, world: World, place: int, worker: Worker) -> Iterator[Next]:
        who, left = f"worker {place + 1}", world.left
        if worker.stopped:
            goes_on = worker._replace(stopped=False)
            yield Next(f"{who} goes on (SIGCONT)", _hold(world, place, goes_on), chance=True)
            return
        if left.crashes:
            dead = _hold(world, place, None)._replace(left=left._replace(crashes=left.crashes - 1))
            yield Next(f"{who} dies", dead, chance=True)
        if left.stops:
            stopped = _hold(world, place, worker._replace(stopped=True, stale=True))
            stopped = stopped._replace(left=left._replace(stops=left.stops - 1))
            yield Next(f"{who} is stopped past its lease (SIGSTOP)", stopped, chance=True)
        if not worker.begun:
            yield self._begin(world, place, worker)
            return
        yield from self._speak(world, place, worker)

    def _begin(self, world: World, place: int, worker: Worker) -> Next:
        if worker.stale:
            words = f"worker {place + 1} stood still past its lease and begins no body"
            return Next(words, _hold(world, place, None))
        begun = worker._replace(begun=True)
        return Next(f"worker {place + 1} begins {STEPS[worker.step]}", _hold(world, place, begun))

    def _speak(self, world: World, place: int, worker: Worker) -> Iterator[Next]:
        if worker.said and worker.said[-1] == "arrived":
            yield from self._answered(world, place, worker)
            return
        word = self.engine.next_word(worker.step, worker.course, worker.said)
        if word == "call":
            yield from self._send(world, place, worker)
        elif word == "look":
            said = "yes" if world.done else "no"
            heard = worker._replace(said=(*worker.said, said))
            words = f"worker {place + 1} asks the provider: {said}"
            known = _hold(world, place, heard)._replace(open_send=False)
            yield Next(words, known)
        elif isinstance(word, Answered):
            yield Next(*self._settle(world, place, worker, word))

    def _send(self, world: World, place: int, worker: Worker) -> Iterator[Next]:
        who, left = f"worker {place + 1}", world.left
        if worker.stale:  # the last look before the outside hears of it
            yield Next(
                f"{who} stood still past its lease and sends nothing", _hold(world, place, None)
            )
            return
        broken = world.broken
        if not world.effect.status:
            broken = broken or "something was sent without a stored intent"
        if self.tool != KEYED and world.open_send:
            broken = broken or "something was sent again though nobody knows what became of it"
        sent = world._replace(open_send=True, broken=broken)
        done = world.done if self.tool == KEYED and world.done else world.done + 1
        arrived = worker._replace(said=(*worker.said, "arrived"))
        applied = _hold(sent, place, arrived)._replace(done=done)
        yield Next(f"{who} sends; the provider has done it {done} time(s)", applied)
        if left.faults:
            fewer = left._replace(faults=left.faults - 1)
            gone = worker._replace(said=(*worker.said, "gone"))
            yield Next(
                f"{who} sends; the request is lost on its way, no answer comes",
                _hold(sent, place, gone)._replace(left=fewer),
                chance=True,
            )
            refused = worker._replace(said=(*worker.said, "refused"))
            yield Next(
                f"{who} sends; the provider refuses and says so",
                _hold(sent, place, refused)._replace(left=fewer, open_send=world.open_send),
                chance=True,
            )

    def _answered(self, world: World, place: int, worker: Worker) -> Iterator[Next]:
        who, before = f"worker {place + 1}", worker.said[:-1]
        read = worker._replace(said=(*before, "ok"))
        yield Next(f"{who} reads the answer", _hold(world, place, read))
        if world.left.faults:
            lost = worker._replace(said=(*before, "gone"))
            fewer = world.left._replace(faults=world.left.faults - 1)
            yield Next(
                f"{who} never gets the answer",
                _hold(world, place, lost)._replace(left=fewer),
                chance=True,
            )

    def _settle(
        self, world: World, place: int, worker: Worker, answer: Answered
    ) -> tuple[str, World]:
        step, row = worker.step, world.rows[worker.step]
        who = f"worker {place + 1} settles {STEPS[step]} with fence {worker.fence}"
        world = _hold(world, place, None)
        over = world.run in TERMINAL and self.guards.terminal_is_final
        mine = worker.fence == row.fence or not self.guards.fence
        if over or not mine or self._state(world, step) != "running":
            return f"{who}: too late, kept as evidence", world
        if worker.fence != row.fence:
            world = world._replace(broken=world.broken or "a stale fence was committed")
        settled = self._outcome(world, step, answer)
        if settled is None:
            return f"{who}: its effect is another's, kept as evidence", world
        return f"{who}: {type(answer.outcome).__name__}", settled

    def _outcome(
        self, world: World, step: int, answer: Answered, *, lost: bool = False
    ) -> World | None:
        """The settle's transaction; None when the effect's guard refuses it."""
        row = world.rows[step]
        effect, end = world.effect, answer.effect
        open_send = world.open_send
        if end is not None and not end.already:
            is_held = effect.holder == step and effect.status in OPEN
            if not is_held and self.guards.intent:
                return None
            effect = effect._replace(status=str(end.status), holder=step, fence=row.fence)
            if end.status in (EffectStatus.APPLIED, EffectStatus.NOT_APPLIED):
                open_send = False
        name = self.planner.name(answer.outcome)
        n_lost = row.n_lost + lost
        decided = self.planner.settle(world.snapshot, step, name, "", row.n_retries, n_lost)
        if lost:
            row = row._replace(n_lost=n_lost, fence=row.fence + 1)
        elif decided.to in ("retrying", "ready"):
            row = row._replace(n_retries=row.n_retries + 1)
        world = world._replace(rows=_set(world.rows, step, row), effect=effect, open_send=open_send)
        return self._sent(world, decided)

    # -- sweeps ------------------------------------------------------------------------------------

    def _sweeps(self, world: World) -> Iterator[Next]:
        if world.run in TERMINAL:
            return
        for step, name in enumerate(STEPS):
            state = self._state(world, step)
            if state == "running" and self.guards.lease_sweep and not _is_held(world, step):
                yield self._reap(world, step)
            elif state == "retrying":
                decided = self.planner.act(world.snapshot, "wake", step)
                if decided is not None:
                    yield Next(f"the timer of {name} fires", self._sent(world, decided))
            elif state == "ready" and self.guards.ready_sweep and not world.mail[step]:
                decided = self.planner.act(world.snapshot, "redispatch", step)
                if decided is not None and decided.sent:
                    words = f"the READY sweep sends for {name} again"
                    yield Next(words, self._sent(world, decided))

    def _reap(self, world: World, step: int) -> Next:
        effect = world.effect
        holds = effect.holder == step and effect.status in OPEN
        answer = self.engine.loss(step, holds and self.guards.no_blind_retry)
        after = self._outcome(world, step, answer, lost=True)
        assert after is not None
        return Next(f"the lease of {STEPS[step]} is over: {type(answer.outcome).__name__}", after)

    # -- people ------------------------------------------------------------------------------------

    def _people(self, world: World) -> Iterator[Next]:
        left = world.left
        over = world.run in TERMINAL and self.guards.terminal_is_final
        if left.cancels and not over:
            decided = self.planner.act(world.snapshot, "cancel", 0)
            if decided is not None:
                fewer = world._replace(left=left._replace(cancels=left.cancels - 1))
                yield Next("somebody cancels the run", self._sent(fewer, decided), chance=True)
        if world.run in TERMINAL:
            return
        for step in range(len(STEPS)):
            if self._state(world, step) == "waiting":
                yield from self._review(world, step)

    def _review(self, world: World, step: int) -> Iterator[Next]:
        """The operator looks into the provider's books, once no living worker is at it any more."""
        effect, row = world.effect, world.rows[step]
        at_work = any(w is not None and not w.stopped for w in world.workers)
        if effect.holder != step or effect.status not in OPEN or at_work:
            return
        name = STEPS[step]
        if world.done:
            world = world._replace(
                effect=effect._replace(status=str(EffectStatus.APPLIED)), open_send=False
            )
            outcome = self.planner.name(Succeeded(output=ANSWER))
            decided = self.planner.settle(
                world.snapshot, step, outcome, "review", row.n_retries, row.n_lost
            )
            yield Next(f"the operator of {name} finds it applied", self._sent(world, decided))
            return
        back = self.planner.act(world.snapshot, "send back", step)
        if back is not None:
            world = world._replace(
                effect=effect._replace(status=str(EffectStatus.NOT_APPLIED)),
                open_send=False,
                rows=_set(world.rows, step, row._replace(n_retries=0, n_lost=0)),
            )
            yield Next(f"the operator of {name} finds it not applied", self._sent(world, back))

    # -- what it is all about ----------------------------------------------------------------------

    def _judged(self, before: World, after: World) -> World:
        """The world, with the first property that no longer holds."""
        if after.broken:
            return after
        effect = after.effect
        if after.done > 1:
            return after._replace(broken="the provider has done it twice")
        if before.run in TERMINAL and after.run != before.run:
            return after._replace(broken=f"a run that was {before.run} is {after.run}")
        if effect.status == EffectStatus.APPLIED and not after.done:
            return after._replace(broken="there is a receipt for what never happened")
        if effect.status == EffectStatus.APPLIED and before.effect.status == "":
            return after._replace(broken="there is a receipt without an intent")
        if after.run == "completed" and after.done != 1:
            return after._replace(broken="the run completed without its effect")
        return after

    def _state(self, world: World, step: int) -> str:
        return self.planner.codes(world.snapshot)[step]

    def _sent(self, world: World, decided: Decided) -> World:
        mail = world.mail
        for step in decided.sent:
            mail = _set(mail, step, min(mail[step] + 1, MAX_MAIL))
        rows = world.rows
        for step in decided.cancelled:
            rows = _set(rows, step, rows[step]._replace(fence=rows[step].fence + 1))
        return world._replace(
            snapshot=decided.snapshot,
            run=decided.run,
            waiting=decided.waiting,
            mail=mail,
            rows=rows,
        )


def _is_held(world: World, step: int) -> bool:
    """Whether a living worker keeps the step's lease."""
    fence = world.rows[step].fence
    return any(
        w is not None and w.step == step and w.fence == fence and not w.stale for w in world.workers
    )


def _hold(world: World, place: int, worker: Worker | None) -> World:
    return world._replace(workers=_set(world.workers, place, worker))


def _set(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])
