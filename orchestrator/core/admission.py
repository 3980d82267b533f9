"""Which READY work starts now: places of the run, critical path first, what a canvas carries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.snapshot import QUEUED, Code, Loop, Snapshot

MAX_QUEUED = 16
"""Messages of one run on their way at once; lanes take the rest as they go, and a claim that
leaves few on their way sends for more."""
FEW_QUEUED = 4
_READY = int(Code.READY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The worker at hand: it may take the next READY work of its own queue at once.

    ``carried`` are the step keys that later messages of its canvas bring; no message is sent for
    those. ``shut`` are keys of gates: nothing behind one is claimed. ``takes_next`` is False when
    the worker has to give its place to others, or when fusion is switched off.
    """

    queue: str
    takes_next: bool = True
    carried: Collection[str] = ()
    shut: frozenset[str] = frozenset()

    def may_claim(self, step: StepPlan) -> bool:
        """Whether the step is for this worker."""
        return step.queue == self.queue and (not self.shut or self.shut.isdisjoint(step.gates))


def admit(
    workflow: CompiledWorkflow, decision: Decision, lane: Lane | None, *, near: int | None = None
) -> None:
    """Choose what the lane claims and what is dispatched; changes the decision's snapshot.

    At most ``max_parallel`` bodies run or are on their way, at most ``MAX_QUEUED`` of them by
    message. Longest remaining path first; among
    equals the lane prefers what follows the step it just settled (``near``).
    """
    snapshot = decision.snapshot
    if snapshot.paused and snapshot.undo is None:
        return  # with a verdict nothing but compensations is READY
    release_items(workflow, decision)
    queued = n_queued(snapshot)
    free = workflow.max_parallel - snapshot.running - queued
    if free <= 0:
        return
    waiting = _startable(workflow, snapshot, near)
    if not waiting:
        return
    if lane is not None and lane.takes_next:
        claim = next((r for r in waiting if lane.may_claim(workflow.steps[r.position])), None)
        if claim is not None:
            waiting.remove(claim)
            free -= 1
            start(snapshot, claim)
            decision.claim = claim
    carried = lane.carried if lane is not None else ()
    for ref in waiting[: max(min(free, MAX_QUEUED - queued), 0)]:
        mark_queued(snapshot, ref)
        if ref.item is None and workflow.steps[ref.position].key in carried:
            decision.carried.append(ref)
        else:
            decision.dispatch.append(ref)


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
