"""Which READY work starts now: places of the run, critical path first, what a canvas carries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.snapshot import QUEUED, Code, Loop, Snapshot

MAX_QUEUED = 16
"""Messages of one run on their way at once; lanes take the rest as they go, and a claim that
leaves few on their way sends for more."""
FEW_QUEUED = 4
COMPANY = 16
"""Steps that one lane claims at once at most."""
COMPANY_S = 0.01
"""How long their bodies may take together, by what such bodies took before: others wait no longer
for what a lane has in hand than they would for a short body."""
_READY = int(Code.READY)
_QUEUED = _READY | QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The worker at hand: it may take the next READY work of its own queue at once.

    ``carried`` are the step keys that later messages of its canvas bring; no message is sent for
    those. ``shut`` are keys of gates: nothing behind one is claimed. ``takes_next`` is False when
    the worker has to give its place to others, or when fusion is switched off. ``pace``: what a
    body of a tool took here before, in seconds, by the tool's name; one that is not in it was
    never seen.
    """

    queue: str
    takes_next: bool = True
    carried: Collection[str] = ()
    shut: frozenset[str] = frozenset()
    pace: Mapping[str, float] = field(default_factory=dict)

    def may_claim(self, step: StepPlan) -> bool:
        """Whether the step is for this worker."""
        return step.queue == self.queue and (not self.shut or self.shut.isdisjoint(step.gates))

    def seconds(self, step: StepPlan, ref: Ref) -> float | None:
        """How long the body is likely to take; None: too long, or unknown, to be claimed with
        others."""
        if self.shut or not step.may_share or (step.for_each is not None and ref.item is None):
            return None
        usual = self.pace.get(step.tool)
        return None if usual is None or usual > COMPANY_S / 2 else usual


def admit(
    workflow: CompiledWorkflow, decision: Decision, lane: Lane | None, *, near: int | None = None
) -> None:
    """Choose what the lane claims and what is dispatched; changes the decision's snapshot.

    At most ``max_parallel`` bodies run or are on their way, at most ``MAX_QUEUED`` of them by
    message. Longest remaining path first; among
    equals the lane prefers what follows the step it just settled (``near``).
    """
    snapshot = decision.snapshot
    if not release(workflow, decision):
        return
    queued = n_queued(snapshot)
    free = max(workflow.max_parallel - snapshot.running - queued, 0)
    waiting = _startable(workflow, snapshot, near) if free else []
    if lane is not None and lane.takes_next:
        free -= _take(workflow, decision, lane, waiting, free)
        queued = n_queued(snapshot) if decision.company else queued
    if not waiting or free <= 0:
        return
    carried = lane.carried if lane is not None else ()
    for ref in waiting[: max(min(free, _n_messages(workflow, lane, waiting) - queued), 0)]:
        mark_queued(snapshot, ref)
        if ref.item is None and workflow.steps[ref.position].key in carried:
            decision.carried.append(ref)
        else:
            decision.dispatch.append(ref)


def release(workflow: CompiledWorkflow, decision: Decision) -> bool:
    """Let items go, if the run starts anything; whether it does."""
    snapshot = decision.snapshot
    if snapshot.paused and snapshot.undo is None:
        return False  # with a verdict nothing but compensations is READY
    release_items(workflow, decision)
    return True


def _take(
    workflow: CompiledWorkflow, decision: Decision, lane: Lane, waiting: list[Ref], free: int
) -> int:
    """The lane claims the first that is for it and, while bodies are known to be short, those that
    follow; they are taken out of ``waiting``. How many of the ``free`` places that takes: what a
    message is on its way for has its place, and is taken last."""
    steps, snapshot = workflow.steps, decision.snapshot
    mine = [ref for ref in waiting if lane.may_claim(steps[ref.position])] if free else []
    chosen = _together(workflow, lane, mine[:free])
    took = len(chosen)
    if took == len(mine) and lane.pace:
        chosen = _together(workflow, lane, [*chosen, *_on_their_way(workflow, snapshot, lane)])
    for ref in chosen:
        start(snapshot, ref)
    if chosen:
        waiting[:] = [ref for ref in waiting if ref not in chosen[:took]]
        decision.claim, decision.company = chosen[0], chosen[1:]
    return took


def _together(workflow: CompiledWorkflow, lane: Lane, refs: Sequence[Ref]) -> list[Ref]:
    """The first, and what may be claimed with it."""
    chosen: list[Ref] = []
    left = COMPANY_S
    for ref in refs[:COMPANY]:
        usual = lane.seconds(workflow.steps[ref.position], ref)
        if usual is None or usual > left:
            break
        chosen.append(ref)
        left -= usual
    return chosen or list(refs[:1])


def _on_their_way(workflow: CompiledWorkflow, snapshot: Snapshot, lane: Lane) -> list[Ref]:
    """Short work of this queue that a message is on its way for: done before that comes, it costs
    the one who gets the message a look."""
    refs = [Ref(position) for position in _with_code(snapshot.codes, _QUEUED)]
    for position, loop in snapshot.loops.items():
        refs.extend(Ref(position, index) for index in loop.queued)
    steps = workflow.steps
    return [
        ref
        for ref in refs
        if lane.may_claim(steps[ref.position])
        and lane.seconds(steps[ref.position], ref) is not None
    ]


def _n_messages(workflow: CompiledWorkflow, lane: Lane | None, waiting: Sequence[Ref]) -> int:
    """How many messages shall be on their way: one brings a worker for a whole company."""
    if lane is None or not lane.pace:
        return MAX_QUEUED
    steps = workflow.steps
    brief = sum(lane.seconds(steps[ref.position], ref) is not None for ref in waiting)
    return min(MAX_QUEUED, len(waiting) - brief + -(-brief // COMPANY))


def _startable(workflow: CompiledWorkflow, snapshot: Snapshot, near: int | None) -> list[Ref]:
    steps = workflow.steps
    refs = [Ref(position) for position in _with_code(snapshot.codes, _READY)]
    if snapshot.undo is not None:
        refs = [ref for ref in refs if steps[ref.position].undoes is not None]
    for position, loop in snapshot.loops.items():
        if snapshot.undo is None or steps[position].undoes is not None:
            refs.extend(Ref(position, index) for index in loop.ready)
    if len(refs) > 1:
        successors = {e.target for e in steps[near].outs} if near is not None else set()
        refs.sort(
            key=lambda r: (
                -steps[r.position].rank,
                r.position not in successors and r.position != near,
                r.position,
                r.item or 0,
            )
        )
    return refs


def _with_code(codes: bytearray, code: int) -> list[int]:
    """The positions of a code; searched by the machine, since most decisions find one or none."""
    found: list[int] = []
    position = codes.find(code)
    while position >= 0:
        found.append(position)
        position = codes.find(code, position + 1)
    return found


def n_queued(snapshot: Snapshot) -> int:
    """How many steps and items are on their way to a worker."""
    count = snapshot.codes.count(Code.READY | QUEUED)
    for loop in snapshot.loops.values():
        count += len(loop.queued)
    return count


def queued_on(workflow: CompiledWorkflow, snapshot: Snapshot, queue: str) -> int:
    """How many of them are on their way to this queue."""
    count = 0
    for position, raw in enumerate(snapshot.codes):
        if raw == Code.READY | QUEUED and workflow.steps[position].queue == queue:
            count += 1
    for position, loop in snapshot.loops.items():
        if workflow.steps[position].queue == queue:
            count += len(loop.queued)
    return count


def release_items(workflow: CompiledWorkflow, decision: Decision) -> None:
    """Make the next items of each for_each READY, as far as its own bound and the run's allow."""
    for position, loop in decision.snapshot.loops.items():
        step = workflow.steps[position]
        if step.for_each is None or is_lost(step.for_each.min_success, loop):
            continue
        if decision.snapshot.undo is not None and step.undoes is None:
            continue  # beside a pause, or after the end: nothing but compensations starts
        while (
            not loop.all_released
            and loop.live < step.for_each.max_parallel
            and len(loop.ready) + len(loop.queued) + loop.running < workflow.max_parallel
        ):
            index = _next_item(loop)
            loop.ready.append(index)
            decision.ready.append(Ref(position, index))


def _next_item(loop: Loop) -> int:
    if loop.again:
        return loop.again.pop(0)
    loop.released += 1
    return loop.released - 1


def is_lost(min_success: int | None, loop: Loop) -> bool:
    """Whether the loop can no longer reach the successes it needs."""
    needed = loop.total if min_success is None else min(min_success, loop.total)
    return loop.total - loop.failed < needed


def start(snapshot: Snapshot, ref: Ref) -> None:
    """READY becomes RUNNING, and holds a place."""
    if ref.item is None:
        snapshot.codes[ref.position] = Code.RUNNING
    else:
        loop = snapshot.loops[ref.position]
        (loop.ready if ref.item in loop.ready else loop.queued).remove(ref.item)
        loop.running += 1
    snapshot.running += 1


def disband(decision: Decision, refs: Collection[Ref]) -> None:
    """These are not claimed in company after all: they are READY, and hold no place."""
    snapshot = decision.snapshot
    for ref in refs:
        decision.company.remove(ref)
        snapshot.running -= 1
        if ref.item is None:
            snapshot.codes[ref.position] = Code.READY
        else:
            loop = snapshot.loops[ref.position]
            loop.running -= 1
            loop.ready.append(ref.item)


def mark_queued(snapshot: Snapshot, ref: Ref) -> None:
    """A message for this READY work is on its way."""
    if ref.item is None:
        snapshot.codes[ref.position] = Code.READY | QUEUED
    else:
        loop = snapshot.loops[ref.position]
        loop.ready.remove(ref.item)
        loop.queued.append(ref.item)


def unqueue(snapshot: Snapshot, ref: Ref) -> bool:
    """The message is taken for lost; True if the work was READY and on its way."""
    if ref.item is None:
        if snapshot.codes[ref.position] != Code.READY | QUEUED:
            return snapshot.codes[ref.position] == Code.READY
        snapshot.codes[ref.position] = Code.READY
        return True
    loop = snapshot.loops.get(ref.position)
    if loop is None:
        return False
    if ref.item in loop.queued:
        loop.queued.remove(ref.item)
        loop.ready.append(ref.item)
    return ref.item in loop.ready
