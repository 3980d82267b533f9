"""A whole run without a database: random documents, random facts, and a mirror of the rows.

The mirror carries a decision out as the engine's SQL does and refuses what the SQL would refuse:
an illegal move, a row inserted twice, a claim of what is not READY. It decides nothing itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core import planning
from orchestrator.core.admission import Lane, n_queued
from orchestrator.core.canvas import MAX_MESSAGES, Chord, compile_canvas, messages
from orchestrator.core.compiled import CompiledWorkflow, Edge, Join
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.definition import parse_document
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.gates import Gate
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    Waiting,
)
from orchestrator.core.reopening import Stored
from orchestrator.core.repairing import Wish
from orchestrator.core.settling import Expanded, Fact
from orchestrator.core.snapshot import ENDED, QUEUED, WAIT_CODES, Code, Mark, Snapshot, unpack
from orchestrator.core.states import (
    RUN_TERMINAL,
    STEP_TERMINAL,
    RunState,
    StepState,
    may_move_run,
    may_move_step,
    may_repair_run,
    may_repair_step,
    may_undo_run,
)

QUEUES = {
    "tool": "tool",
    "agent": "agent",
    "router": "engine",
    "wait": "engine",
    "human_gate": "approval",
    "sub_workflow": "subworkflow",
}
_DONE = (StepState.COMPLETED, StepState.COMPENSATED)  # what was undone had been done
TRUE, FALSE, BROKEN = "true", "false", "broken"


def workflow_of(steps: dict[str, dict[str, Any]], **more: Any) -> CompiledWorkflow:
    value = {"schema": "orchestrator/v1", "name": "random", "steps": steps, **more}
    document, problems = parse_document(value)
    assert document is not None, problems
    return compile_workflow(document, value, queues=QUEUES, pins={}, undoable={"child"})


# -- random documents ------------------------------------------------------------------------------


def random_workflow(
    rng: random.Random, *, most: int = 8, compensated: bool = True
) -> CompiledWorkflow:
    """Any shape that publishing lets through: edges, joins, routers, loops, fallbacks, policies."""
    keys = [f"s{n}" for n in range(rng.randint(1, most))]
    steps = {key: _random_step(rng, keys[:n]) for n, key in enumerate(keys)}
    _add_fallbacks(rng, keys, steps)
    _add_routes(rng, keys, steps)
    if not compensated:
        for step in steps.values():
            step.pop("compensate", None)
    return workflow_of(
        steps, max_parallel=rng.randint(1, 4), on_error=_often(rng, "fail", "pause", "continue")
    )


def _often(rng: random.Random, usual: Any, *others: Any, chance: float = 0.4) -> Any:
    return rng.choice(others) if rng.random() < chance else usual


def _random_step(rng: random.Random, earlier: list[str]) -> dict[str, Any]:
    kind = _often(rng, "tool", "router", "wait", "human_gate", "sub_workflow", "agent")
    step: dict[str, Any] = {"type": kind, **_BODIES[kind]}
    if kind == "router":
        step["routes"] = [{"id": "r0", "to": []}, {"id": "r1", "to": [], "when": "true"}]
    if earlier and rng.random() < 0.85:
        chosen = rng.sample(earlier, rng.randint(1, min(3, len(earlier))))
        step["needs"] = [_random_need(rng, key) for key in chosen]
        step["join"] = _often(rng, "all", "strict", "any", {"at_least": rng.randint(1, 2)})
        step["late"] = _often(rng, "ignore", "cancel")
        if isinstance(step["join"], dict):
            step["join"]["at_least"] = min(step["join"]["at_least"], len(chosen))
    if rng.random() < 0.15:
        step["when"] = "input.go"
    if rng.random() < 0.15:
        step["optional"] = True
    if rng.random() < 0.3:
        step["on_error"] = rng.choice(["fail", "pause", "continue"])
    step["retry"] = {
        "max_retries": rng.randint(0, 2),
        "base_delay": rng.choice(["0s", "1s"]),
        "on": ["transient", "timeout", "child_failed"],
    }
    _add_loops(rng, step)
    _add_effects(rng, step)
    return step


def _add_effects(rng: random.Random, step: dict[str, Any]) -> None:
    if step["type"] == "tool" and rng.random() < 0.3:
        step["effect"] = {"key": "one"}
    if step["type"] == "tool" and rng.random() < 0.3:
        step["compensate"] = {"tool": "noop", "retry": {"max_retries": 1}}
    if rng.random() < 0.1:
        step["irreversible"] = True


_BODIES: dict[str, dict[str, Any]] = {
    "tool": {"tool": "noop"},
    "agent": {"model": "fast"},
    "router": {"strategy": "rules", "mode": "all", "default": "r0"},
    "wait": {"signal": "go"},
    "human_gate": {"assignees": ["role:finance"]},
    "sub_workflow": {"workflow": "child"},
}


def _random_need(rng: random.Random, key: str) -> Any:
    need: dict[str, Any] = {"step": key, "on": _often(rng, "completed", "failed", "skipped", "any")}
    if rng.random() < 0.25:
        need["when"] = "input.go"
    return need if len(need) > 1 or rng.random() < 0.5 else key


def _add_loops(rng: random.Random, step: dict[str, Any]) -> None:
    if rng.random() < 0.2:
        step["for_each"] = {"items": "${{ input.items }}", "max_parallel": rng.randint(1, 3)}
        if rng.random() < 0.5:
            step["for_each"]["min_success"] = rng.randint(0, 3)
    if step["type"] == "tool" and rng.random() < 0.15:
        step["repeat"] = {
            "until": "output.done",
            "max": rng.randint(1, 3),
            "delay": rng.choice(["0s", "5s"]),
            "on_exhausted": rng.choice(["fail", "continue"]),
        }


def _add_fallbacks(rng: random.Random, keys: list[str], steps: dict[str, Any]) -> None:
    """Chains too: a fallback may have one of its own. Fallbacks have no needs."""
    free = [key for key in keys if "needs" not in steps[key]]
    owned: set[str] = set()
    for place, key in enumerate(keys):
        later = [other for other in free if keys.index(other) > place and other not in owned]
        if later and rng.random() < 0.3:
            steps[key]["fallback"] = rng.choice(later)
            owned.add(steps[key]["fallback"])


def _add_routes(rng: random.Random, keys: list[str], steps: dict[str, Any]) -> None:
    fallbacks = {step.get("fallback") for step in steps.values()}
    for place, key in enumerate(keys):
        for route in steps[key].get("routes", ()):
            later = [other for other in keys[place + 1 :] if other not in fallbacks]
            route["to"] = rng.sample(later, rng.randint(0, min(2, len(later))))


# -- values behind conditions ----------------------------------------------------------------------


@dataclass
class Truth:
    """What conditions say in one run: fixed by a seed, the same however often it is asked."""

    seed: int
    plain: bool = False

    def see(self, snapshot: Snapshot) -> None:
        pass

    def cover(self, owner: int, fallback: int) -> None:
        pass

    def edge(self, edge: Edge) -> bool:
        return edge.when is None or self._answer("edge", edge.index)

    def step(self, position: int) -> bool:
        return self._answer("step", position)

    def until(self, ref: Ref, output: Any) -> bool:
        return self._answer("until", ref, output["n"])

    def _answer(self, *about: Any) -> bool:
        word = random.Random(f"{self.seed}{about}").choice([TRUE, TRUE, TRUE, FALSE, FALSE, BROKEN])
        if word == BROKEN and not self.plain:
            raise ConditionError(f"{about} cannot be answered")
        return word == TRUE


# -- the mirror of the rows ------------------------------------------------------------------------


@dataclass
class Row:
    state: StepState
    waiting_for: str = ""
    n_retries: int = 0
    n_lost: int = 0
    round: int = 1
    claims: int = 0
    of_before: bool = False  # a repair made it BLOCKED, and it has not been READY since


@dataclass
class World:
    """A run: its compact state, the rows that decisions made, the wake-ups under way."""

    workflow: CompiledWorkflow
    truth: Truth
    snapshot: Snapshot = field(init=False)
    state: RunState = RunState.PENDING
    waiting_for: str = ""
    rows: dict[Ref, Row] = field(default_factory=dict)
    wakeups: list[Ref] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    forged: bool = False
    routes: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        workflow, truth = self.workflow, self.truth
        self.snapshot = Snapshot.fresh(len(workflow.steps), len(workflow.edges))
        self.apply(self.decide(lambda _: planning.begin(workflow, truth)))

    # Same state and same fact give the same decision, and the state decided from stays as it was.
    def decide(self, plan: Callable[[Snapshot], Decision | None]) -> Decision:
        decision = self.ask(plan)
        assert decision is not None
        return decision

    def ask(self, plan: Callable[[Snapshot], Decision | None]) -> Decision | None:
        before = self.snapshot.pack()
        decision = plan(self.snapshot)
        assert self.snapshot.pack() == before, "planning changed the state it decided from"
        assert plan(unpack(before)) == decision, "the same fact led to another decision"
        return decision

    # -- facts -----------------------------------------------------------------------------------

    def claim(self, ref: Ref) -> bool:
        decision = self.ask(lambda s: planning.claim(self.workflow, s, ref))
        if decision is None:
            return False
        was_queued = self._is_queued(ref)
        self.forged = self.forged or not was_queued
        # A claim leaves the run's state as planning's default says: something runs.
        self.apply(decision)
        return True

    def settle(
        self, ref: Ref, outcome: Outcome | Expanded, *, lane: Lane | None = None, lost: bool = False
    ) -> None:
        row = self.rows[ref]
        fact = Fact(
            ref=ref,
            outcome=outcome,
            waited_for=row.waiting_for if row.state is StepState.WAITING else "",
            n_retries=row.n_retries,
            n_lost=row.n_lost + lost,
            round_number=row.round,
            jitter=0.5,
        )
        if isinstance(outcome, Routed) and ref.item is None:
            self.routes[ref.position] = outcome.routes
        if isinstance(outcome, Expanded) and outcome.only is not None:
            for index in outcome.only:
                self.rows[Ref(ref.position, index)] = Row(StepState.BLOCKED)
        elif isinstance(outcome, Expanded):
            self.rows = {
                r: row for r, row in self.rows.items() if r == ref or r.position != ref.position
            }
            for index in range(outcome.total):
                self.rows[Ref(ref.position, index)] = Row(StepState.BLOCKED)  # tried again: anew
        decision = self.decide(
            lambda s: planning.settle(self.workflow, s, fact, self.truth, lane=lane)
        )
        self.apply(decision, outcome, lost=lost)
        self._close_loops(decision, lane)

    def _close_loops(self, decision: Decision, lane: Lane | None) -> None:
        for position in decision.loops_done:
            self.apply(
                self.decide(
                    lambda s, p=position: planning.close_loop(  # type: ignore[misc]
                        self.workflow, s, p, self.truth, lane=lane
                    )
                )
            )

    def wake(self, ref: Ref) -> None:
        retries = self.rows[ref].state is StepState.RETRYING
        self.apply(self.decide(lambda s: planning.wake(self.workflow, s, ref, retries=retries)))

    def park(self, ref: Ref) -> None:
        """The work stands before a gate that is shut."""
        gate = Gate(key="service:x", source="breaker", allows=0, why="x ails")
        decision = self.ask(lambda s: planning.park(self.workflow, s, ref, gate, state=self.state))
        if decision is not None:
            assert decision.claim is None
            assert ref not in (*decision.dispatch, *decision.carried)
            self.apply(decision, Waiting(kind="service"))

    def let_go(self, ref: Ref) -> None:
        """The gate lets it through."""
        self.apply(self.decide(lambda s: planning.let_go(self.workflow, s, ref, "service:x")))

    def redispatch(self) -> None:
        """The sweep: every READY row's message is taken for lost."""
        stale = [ref for ref, row in self.rows.items() if row.state is StepState.READY]
        self.wakeups = []
        self.apply(self.decide(lambda s: planning.redispatch(self.workflow, s, stale)))

    def pause(self) -> None:
        self.apply(self.decide(lambda s: planning.pause(self.workflow, s, reason="test")))

    def resume(self) -> None:
        self.apply(self.decide(lambda s: planning.resume(self.workflow, s, reason="test")))

    def cancel(self) -> None:
        self.apply(self.decide(lambda s: planning.cancel(self.workflow, s, reason="test")))

    def time_out(self) -> None:
        decision = self.ask(lambda s: planning.time_out(self.workflow, s, message="test"))
        if decision is not None:
            self.apply(decision)

    # -- carrying a decision out -----------------------------------------------------------------

    def stored(self) -> Stored:
        completed = {p: chosen for p, chosen in self.routes.items() if self._is_router(p)}
        return Stored(rows={ref: row.state for ref, row in self.rows.items()}, routes=completed)

    def _is_router(self, position: int) -> bool:
        looping = self.workflow.steps[position].for_each is not None
        return self.snapshot.code(position) == Code.COMPLETED and not looping

    def repair(self, act: Callable[[Wish], Decision]) -> None:
        """Raises StateConflict when the repair is refused."""
        stored = self.stored()

        def plan(snapshot: Snapshot) -> Decision:
            wish = Wish(
                workflow=self.workflow, snapshot=snapshot, stored=stored, conditions=self.truth
            )
            return act(wish)

        decision = self.decide(plan)
        self._reopen(decision)
        self.apply(decision, repairing=True)
        self._close_loops(decision, None)

    def undo(self, plan: Callable[[Snapshot], Decision]) -> None:
        """Steps of a run that is over, or paused, are undone; it comes back to where it was."""
        decision = self.decide(plan)
        self._reopen(decision)
        if self.state in RUN_TERMINAL:
            assert may_undo_run(self.state, RunState.COMPENSATING)
            self.state = RunState.COMPENSATING
        self.apply(decision, repairing=True)

    def _reopen(self, decision: Decision) -> None:
        for position in decision.reopened:
            self._anew(Ref(position), StepState.BLOCKED)
            self.routes.pop(position, None)
            for ref, row in self.rows.items():
                if ref.position == position and ref.item is not None:
                    row.state = StepState.SKIPPED
        for position in decision.loops_again:
            self._anew(Ref(position), StepState.RUNNING)
        for ref in decision.reopened_items:
            self._anew(ref, StepState.BLOCKED)

    def _anew(self, ref: Ref, to: StepState) -> None:
        row = self.rows[ref]
        assert may_repair_step(row.state, to), f"{ref}: {row.state} to {to}"
        row.state, row.waiting_for = to, ""
        row.n_retries = row.n_lost = 0
        row.round = 1
        row.of_before = to is StepState.BLOCKED

    def apply(
        self,
        decision: Decision,
        outcome: Outcome | Expanded | None = None,
        *,
        lost: bool = False,
        repairing: bool = False,
    ) -> None:
        assert repairing or self.state not in RUN_TERMINAL, "a run that is over was moved"
        before = self.snapshot
        if not repairing:
            self._check_moves(before, decision)
        self._release(decision)
        self._again(decision)
        self._move_subject(decision, outcome, lost=lost)
        self._insert(decision)
        self._cancel(decision)
        self.snapshot = decision.snapshot
        may = may_repair_run if repairing else may_move_run
        assert may(self.state, decision.run_state), (self.state, decision.run_state)
        self.state, self.waiting_for = decision.run_state, decision.waiting_for
        self.wakeups += [*decision.dispatch, *decision.carried]
        self.events += [draft.type for draft in decision.events]
        self._check_canvas(decision)
        self.check()

    def move(self, ref: Ref, to: StepState) -> None:
        row = self.rows[ref]
        assert may_move_step(row.state, to), f"{ref}: {row.state} to {to}"
        row.state, row.waiting_for = to, ""

    def _skip_by_repair(self, ref: Ref) -> None:
        row = self.rows[ref]
        assert may_repair_step(row.state, StepState.SKIPPED)
        row.state, row.waiting_for = StepState.SKIPPED, ""

    def _release(self, decision: Decision) -> None:
        for ref in decision.ready:
            if ref.item is not None:
                self.move(ref, StepState.READY)

    def _move_subject(
        self, decision: Decision, outcome: Outcome | Expanded | None, *, lost: bool
    ) -> None:
        subject = decision.subject
        if subject is None:
            return
        row = self.rows[subject.ref]
        if subject.to is StepState.SKIPPED and outcome is None:
            self._skip_by_repair(subject.ref)
        elif subject.loop_total is None:
            self.move(subject.ref, subject.to)
        if subject.again:
            row.round, row.n_retries = row.round + 1, 0
        elif lost:
            row.n_lost += 1
        elif isinstance(outcome, Failed) and subject.to in (StepState.RETRYING, StepState.READY):
            row.n_retries += 1
        if subject.to is StepState.WAITING:
            row.waiting_for = "timer" if subject.again else _kind_of(outcome)

    def _insert(self, decision: Decision) -> None:
        for ref in decision.ready:
            if ref.item is None and ref != decision.claim:
                assert ref not in self.rows, f"{ref} becomes READY twice"
                self.rows[ref] = Row(StepState.READY)
        if decision.claim is not None:
            self._claim(decision.claim, is_new=decision.claim in decision.ready)
        for position, _ in decision.failed:
            row = self.rows.get(Ref(position))
            assert row is None or row.state is StepState.BLOCKED
            self.rows[Ref(position)] = Row(StepState.FAILED, claims=row.claims if row else 0)
        for position in decision.undoing:
            if self.rows[Ref(position)].state is StepState.COMPLETED:
                self.move(Ref(position), StepState.COMPENSATING)
            else:
                assert position in decision.snapshot.acted
        self._move_items(decision)
        for position in decision.kept:
            self.move(Ref(position), StepState.COMPLETED)
        for position in decision.undone:
            self.move(Ref(position), StepState.COMPENSATED)
        for position in decision.excused:
            if self.rows[Ref(position)].state is not StepState.SKIPPED:
                self.move(Ref(position), StepState.SKIPPED)

    def _move_items(self, decision: Decision) -> None:
        for refs, to in (
            (decision.items_undoing, StepState.COMPENSATING),
            (decision.items_undone, StepState.COMPENSATED),
            (decision.items_kept, StepState.COMPLETED),
        ):
            for ref in refs:
                self.move(ref, to)

    def completed_items(self, position: int | None) -> tuple[int, ...]:
        """The items of a for_each that are to be undone."""
        done = (r for r, row in self.rows.items() if row.state is StepState.COMPLETED)
        return tuple(sorted(r.item for r in done if r.position == position and r.item is not None))

    def _again(self, decision: Decision) -> None:
        for position in decision.again:
            row = self.rows[Ref(position)]
            reopened = row.state is StepState.BLOCKED
            assert row.claims or reopened, "a step that never started is tried again"
            self.move(Ref(position), StepState.READY)
            row.of_before = False
            self.rows[Ref(position)].n_retries = 0
            self.rows[Ref(position)].n_lost = 0

    def _claim(self, ref: Ref, *, is_new: bool) -> None:
        if is_new and ref.item is None:
            assert ref not in self.rows
            self.rows[ref] = Row(StepState.READY)
        self.move(ref, StepState.RUNNING)
        self.rows[ref].claims += 1

    def _cancel(self, decision: Decision) -> None:
        for position in decision.cancelled:
            row = self.rows.get(Ref(position))
            if row is not None and row.state not in STEP_TERMINAL:
                self.move(Ref(position), StepState.CANCELLED)
        for position in decision.cancel_items:
            loop = decision.snapshot.loops.get(position)
            spared = {StepState.RUNNING} if loop is not None and loop.running else set()
            doubts = loop is not None and loop.waits.get("review")
            for ref, row in self.rows.items():
                is_item = ref.position == position and ref.item is not None
                if doubts and row.waiting_for == "review":
                    continue
                if is_item and row.state not in STEP_TERMINAL | spared:
                    self.move(ref, StepState.CANCELLED)

    # -- laws ------------------------------------------------------------------------------------

    def _check_moves(self, before: Snapshot, decision: Decision) -> None:
        """Terminal is final; what becomes READY had its needs settled."""
        for position, raw in enumerate(before.codes):
            if raw in ENDED and decision.snapshot.codes[position] != raw:
                undone = position in decision.undoing and raw == Code.COMPLETED
                again = position in decision.again
                allowed = again or undone or self._is_optional_owner(position, decision)
                assert allowed, f"step {position} left its end {Code(raw).name}"
        for ref in decision.ready:
            if ref.item is None and before.code(ref.position) == Code.BLOCKED:
                self._check_needs(ref.position, decision.snapshot)

    def _is_optional_owner(self, position: int, decision: Decision) -> bool:
        """A failed optional step counts as skipped once its fallback has failed too."""
        step = self.workflow.steps[position]
        after = decision.snapshot.code(position)
        return step.optional and step.fallback is not None and after == Code.SKIPPED

    def _check_needs(self, position: int, after: Snapshot) -> None:
        step = self.workflow.steps[position]
        if step.undoes is not None:
            self._check_undo(step.undoes, after)
            return
        if step.owner is not None:
            assert after.code(step.owner) in (Code.FAILED, Code.TIMED_OUT), (
                "its owner has not failed"
            )
            return
        marks = Counter(after.marks[edge.index] for edge in step.ins)
        if step.join is Join.AT_LEAST and step.ins:
            assert marks[Mark.TAKEN] >= step.join_count
        elif step.ins:
            assert not marks[Mark.OPEN], f"{step.key} starts with needs that are not settled"
            assert marks[Mark.TAKEN] >= (len(step.ins) if step.join is Join.STRICT else 1)
            for edge in step.ins:
                assert after.code(edge.source) in ENDED, f"{step.key} starts before its need ended"

    def _check_undo(self, position: int, after: Snapshot) -> None:
        """In reverse: whatever was done behind the step has been undone, or could not be."""
        if after.undo is None:
            assert after.verdict is not None
            assert after.verdict.state != RunState.COMPLETED
        behind, frontier = set[int](), [edge.target for edge in self.workflow.steps[position].outs]
        while frontier:
            target = frontier.pop()
            if target not in behind:
                behind.add(target)
                frontier += [edge.target for edge in self.workflow.steps[target].outs]
        for undo in self.workflow.compensations:
            if after.undo is not None and undo.undoes not in after.undo.steps:
                continue
            if undo.undoes in behind and (
                undo.undoes in after.acted
                or after.code(undo.undoes) in (Code.COMPLETED, Code.COMPENSATING)
            ):
                assert after.code(undo.position) in ENDED, f"{undo.key} has to be first"

    def check(self) -> None:
        """The compact state is the rows, its counters are true, its bound holds."""
        snapshot = self.snapshot
        assert unpack(snapshot.pack()) == snapshot
        for step in self.workflow.steps:
            self._check_step(step.position)
        for position in snapshot.loops:
            self._check_loop(position)
        running = sum(row.state is StepState.RUNNING for row in self.rows.values())
        loops = sum(snapshot.code(p) == Code.LOOPING for p in range(len(snapshot.codes)))
        assert snapshot.running == running - loops
        assert snapshot.running <= self.workflow.max_parallel
        if not self.forged:
            assert snapshot.running + n_queued(snapshot) <= self.workflow.max_parallel
        if self.state in RUN_TERMINAL:
            self.check_end()

    def _check_step(self, position: int) -> None:
        code, row = self.snapshot.code(position), self.rows.get(Ref(position))
        name = f"{self.workflow.steps[position].key} is {Code(code).name}, its row {row}"
        if row is None:
            assert code in (Code.BLOCKED, Code.SKIPPED, Code.CANCELLED), name
            return
        assert row.state == self.snapshot.state(position), name
        if row.state is StepState.WAITING:
            assert code == WAIT_CODES[row.waiting_for], name

    def _check_loop(self, position: int) -> None:
        loop = self.snapshot.loops[position]
        rows = {ref: row for ref, row in self.rows.items() if ref.position == position}
        del rows[Ref(position)]
        states = Counter(row.state for row in rows.values())
        waits = Counter(row.waiting_for for row in rows.values() if row.waiting_for)
        ready = {ref.item for ref, row in rows.items() if row.state is StepState.READY}
        assert states[StepState.RUNNING] == loop.running
        assert states[StepState.RETRYING] == loop.retrying
        assert states[StepState.COMPLETED] == loop.ok
        assert states[StepState.FAILED] + states[StepState.TIMED_OUT] == loop.failed
        assert ready == {*loop.ready, *loop.queued}
        assert len(loop.ready) + len(loop.queued) == len(ready)
        assert waits == Counter({k: n for k, n in loop.waits.items() if n})

    def check_fates(self) -> None:
        """What became of each step of a run that took its course, worked out from the end back."""
        for step in self.workflow.forward:
            state, marks = self.snapshot.state(step.position), self.snapshot.marks
            if step.owner is not None:
                assert Ref(step.position) not in self.rows or Ref(step.owner) in self.rows
                continue
            if state is StepState.CANCELLED or step.position in self.snapshot.barred:
                continue  # a late branch; a condition that failed
            taken = [edge for edge in step.ins if self._is_taken(edge)]
            if step.join is not Join.AT_LEAST and (step.join is Join.ALL or taken == [*step.ins]):
                assert [e for e in step.ins if marks[e.index] == Mark.TAKEN] == taken, step.key
            needed = {Join.ALL: 1, Join.STRICT: len(step.ins), Join.AT_LEAST: step.join_count}
            met = not step.ins or len(taken) >= needed[step.join]
            wanted = met and (step.when is None or self.truth.step(step.position))
            row = self.rows.get(Ref(step.position))
            ran = row is not None and not row.of_before
            assert ran == wanted, f"{step.key} is {state}"

    def _end_of(self, position: int, *, own: bool = False) -> str:
        step = self.workflow.steps[position]
        state = self.snapshot.state(position)
        fallback = step.fallback
        while fallback is not None and not own:
            if self.snapshot.state(fallback) in _DONE:
                return "completed"
            fallback = self.workflow.steps[fallback].fallback
        if state in _DONE:
            return "completed"
        if state not in (StepState.FAILED, StepState.TIMED_OUT):
            return str(state)
        if step.optional and step.owner is None and not own:
            return "skipped"
        goes_on = step.on_error == "continue" and not step.handles_failure and step.owner is None
        return "completed" if goes_on and not own else "failed"

    def _is_taken(self, edge: Edge) -> bool:
        end = self._end_of(edge.source)
        if end == "cancelled" or edge.on.name not in (end.upper(), "ANY"):
            return False
        chosen = self.routes.get(edge.source)
        if edge.routes is not None and (chosen is None or edge.routes.isdisjoint(chosen)):
            return False
        try:
            return self.truth.edge(edge)
        except ConditionError:
            return False  # nobody asked any more: the join had fired, or gone

    def check_end(self) -> None:
        if self.snapshot.verdict is None:
            assert self.state is RunState.COMPLETED
            self.check_fates()
        for ref, row in self.rows.items():
            assert row.state in STEP_TERMINAL, f"the run is {self.state}, {ref} is {row.state}"
        for position, raw in enumerate(self.snapshot.codes):
            key = self.workflow.steps[position].key
            if self.workflow.steps[position].undoes is not None and raw == Code.BLOCKED:
                self._check_not_undone(position)
                continue
            if self.workflow.steps[position].type == "tool" and raw == Code.COMPLETED:
                left = self.completed_items(self.workflow.steps[position].undoes)
                assert not left, f"{key} has undone its step, but not the items {left}"
            assert raw in ENDED, f"the run is {self.state}, {key} is {Code(raw & ~QUEUED).name}"

    def _check_not_undone(self, position: int) -> None:
        """A compensation that never started: the run completed, or its step did not."""
        undoes = self.workflow.steps[position].undoes
        assert undoes is not None
        done = self.snapshot.code(undoes) == Code.COMPLETED or undoes in self.snapshot.acted
        assert self.state is RunState.COMPLETED or not done, f"step {undoes} was not undone"

    def _check_canvas(self, decision: Decision) -> None:
        if not decision.dispatch:
            return
        for fuse in (True, False):
            check_canvas(self.workflow, decision.dispatch, fuse=fuse)

    def _is_queued(self, ref: Ref) -> bool:
        if ref.item is None:
            return self.snapshot.codes[ref.position] == Code.READY | QUEUED
        return ref.item in self.snapshot.loops[ref.position].queued


def _kind_of(outcome: Outcome | Expanded | None) -> str:
    return outcome.kind if isinstance(outcome, Waiting) else "child"


def check_canvas(workflow: CompiledWorkflow, wave: list[Ref], *, fuse: bool) -> None:
    """Every ref starts exactly one message; bounded; a chord's body needs its headers' tails."""
    canvases = compile_canvas(workflow, wave, fuse=fuse)
    starts: Counter[Ref] = Counter()
    for canvas in canvases:
        stretches = list(messages(canvas))
        assert len(stretches) <= MAX_MESSAGES
        if isinstance(canvas, Chord):
            starts.update(header.refs[0] for header in canvas.headers)
            (body,) = canvas.body.refs
            tails = {header.refs[-1].position for header in canvas.headers}
            assert {edge.source for edge in workflow.steps[body.position].ins} <= tails
            assert body not in wave
        else:
            starts[stretches[0].refs[0]] += 1
        for stretch in stretches:
            assert {workflow.steps[ref.position].queue for ref in stretch.refs} == {stretch.queue}
            assert fuse or len(stretch.refs) == 1
    assert starts == Counter(wave)


# -- random facts ----------------------------------------------------------------------------------

FAILURES = (
    ErrorClass.TRANSIENT,
    ErrorClass.TIMEOUT,
    ErrorClass.PERMANENT,
    ErrorClass.SCHEMA_ERROR,
)


class Driver:
    """Brings a run to its end by facts in random order; a run that goes nowhere is an error."""

    def __init__(self, world: World, rng: random.Random, *, fails: float = 0.3) -> None:
        self.world, self.rng, self.fails = world, rng, fails
        self.resumes = 0
        self.lose = 0.05
        self.shut = 0.1

    def run(self, *, meddle: float = 0.03, limit: int = 3000) -> None:
        for _ in range(limit):
            if self.world.state in RUN_TERMINAL:
                return
            self.one_fact(meddle)
        raise AssertionError(f"no end: {self.world.state} {self.world.rows}")

    def one_fact(self, meddle: float) -> None:
        world = self.world
        if self.rng.random() < meddle:
            self._meddle()
            return
        acts = [*self._open_rows(), *({None} if world.wakeups else ())]
        if acts:
            self._act(self.rng.choice(acts))
        elif world.state is RunState.PAUSED:
            self._go_on()
        else:
            ready = sum(row.state is StepState.READY for row in world.rows.values())
            assert ready, f"the run hangs: {world.state}, {world.snapshot}"
            world.redispatch()
            assert world.wakeups, "READY work is not sent again, and nothing runs"

    def _open_rows(self) -> list[Ref]:
        acting = (StepState.RUNNING, StepState.WAITING, StepState.RETRYING)
        looping = self.world.snapshot.loops
        return [
            ref
            for ref, row in self.world.rows.items()
            if row.state in acting and not (ref.item is None and ref.position in looping)
        ]

    def _act(self, ref: Ref | None) -> None:
        world = self.world
        if ref is None:
            ref = world.wakeups.pop(self.rng.randrange(len(world.wakeups)))
            if self.rng.random() < self.shut:
                world.park(ref)
            elif self.rng.random() < 0.9:  # else the message is lost
                world.claim(ref)
            if self.rng.random() < 0.2:
                world.wakeups.append(ref)  # doubled
            return
        row = world.rows[ref]
        if row.state is StepState.RETRYING or row.waiting_for == "timer":
            world.wake(ref)
        elif row.waiting_for == "service":
            world.let_go(ref)
        elif row.state is StepState.WAITING:
            world.settle(ref, self._answer(row.waiting_for))
        elif self.rng.random() < self.lose:
            lost = StepError(error_class=ErrorClass.WORKER_LOST, message="gone")
            world.settle(ref, Failed(error=lost), lost=True)
        else:
            world.settle(ref, self._outcome(ref), lane=self._lane(ref))

    def _lane(self, ref: Ref) -> Lane:
        step = self.world.workflow.steps[ref.position]
        carried = self.rng.sample(list(self.world.workflow.by_key), k=1)
        return Lane(queue=step.queue, takes_next=self.rng.random() < 0.7, carried=carried)

    def _failure(self) -> Failed:
        error = StepError(error_class=self.rng.choice(FAILURES), message="random")
        return Failed(error=error)

    def _answer(self, kind: str) -> Outcome:
        if kind == "person" and self.rng.random() < 0.2:
            return Waiting(kind="person", key="gate")
        if kind == "person" and self.rng.random() < 0.2:
            return EndRun(output={}, outcome="rejected")
        if self.rng.random() < self.fails:
            return self._failure()
        return Succeeded(output={"n": self.rng.randrange(100)})

    def _outcome(self, ref: Ref) -> Outcome | Expanded:
        step = self.world.workflow.steps[ref.position]
        if self.rng.random() < self.fails:
            return self._failure()
        if step.for_each is not None and step.undoes is not None and ref.item is None:
            only = self.world.completed_items(step.undoes)
            return Expanded(total=len(only), only=only)
        if step.for_each is not None and ref.item is None:
            return Expanded(total=self.rng.randint(0, 5))
        match step.type:
            case "router":
                return Routed(routes=self.rng.choice([("r0",), ("r1",), ("r0", "r1")]), why="test")
            case "wait":
                return Waiting(kind="signal", key="go")
            case "human_gate":
                return Waiting(kind="person", key=step.key)
            case "sub_workflow":
                return StartChild(name="child", input={})
            case _:
                if step.effect_key is not None and self.rng.random() < 0.3:
                    return Waiting(kind="review", key=step.key)
                return Succeeded(output={"n": self.rng.randrange(100)})

    def _go_on(self) -> None:
        self.resumes += 1
        if self.resumes > 4:
            self.world.cancel()
        else:
            self.world.resume()

    def _meddle(self) -> None:
        world = self.world
        if world.snapshot.verdict is not None or world.snapshot.undo is not None:
            self.rng.choice([world.time_out, world.redispatch])()
            return
        acts: list[Callable[[], None]] = [world.cancel, world.time_out, world.redispatch]
        acts.append(world.resume if world.snapshot.paused else world.pause)
        ready = [ref for ref, row in world.rows.items() if row.state is StepState.READY]
        if ready:
            acts.append(lambda: self._forge(ready))
        self.rng.choice(acts)()

    def _forge(self, ready: list[Ref]) -> None:
        """A message nobody sent, for work that is READY: it may start, within the bound."""
        self.world.claim(self.rng.choice(ready))
