"""One replayed run: its state so far, and the comparison of each decision with the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.core import planning, saga
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, EventDraft, Ref
from orchestrator.core.endings import MAX_ROUTE, OUTPUT_FAILED, Tally, last_words, summary
from orchestrator.core.propagation import Conditions
from orchestrator.core.replay_facts import Recall, diverge, error_of
from orchestrator.core.replay_log import (
    Difference,
    Diverged,
    Log,
    Recorded,
    name_of,
    shown,
    shown_draft,
)
from orchestrator.core.replay_rows import Row, Rows
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.states import RUN_TERMINAL, RunState

Wrap = Callable[[Conditions, Log], Conditions]
"""What asks conditions beside the record: given the recorded answers, and where the replay is."""
_STEP_ENDS = frozenset(
    {"step.completed", "step.failed", "step.timed_out", "step.skipped", "step.cancelled"}
)


class Replay:
    """One run, as the lines so far imply it: where it stands, its rows, what its end wrote.

    ``snapshot`` differs from the stored one in what is on its way to workers, and in nothing else.
    ``conditions`` may wrap the recorded answers (a deep check works them out once more).
    """

    def __init__(
        self,
        workflow: CompiledWorkflow,
        lines: Iterable[Recorded],
        conditions: Wrap | None = None,
    ) -> None:
        self.workflow = workflow
        self.log = Log(lines)
        self.rows = Rows(workflow)
        self.snapshot = Snapshot.fresh(len(workflow.steps), len(workflow.edges))
        self.state = RunState.PENDING
        self.waiting_for = self.outcome = self.compensation = ""
        self.error: dict[str, Any] | None = None
        self.warnings: list[dict[str, Any]] = []
        self.route: list[str] = []
        self.counts: dict[str, int] = {}
        self.routes: dict[int, tuple[str, ...]] = {}
        self.ended_at: dict[str, int] = {}
        recall = Recall(workflow, self.log)
        self.conditions = conditions(recall, self.log) if conditions is not None else recall

    def reopen(self) -> None:
        """A repair takes back what the run's end wrote, where it had ended."""
        if self.state in RUN_TERMINAL:
            self.outcome, self.error = "", None

    # -- what acts are made of -----------------------------------------------------------------

    def ref(self, line: Recorded) -> Ref:
        """The step, or item, that the line names."""
        key, bracket, rest = line.step.partition("[")
        position = self.workflow.by_key.get(key)
        if position is None:
            diverge(line, "a step of the workflow", line)
        return Ref(position, int(rest[:-1]) if bracket else None)

    def row(self, line: Recorded, ref: Ref) -> Row:
        """Its row, which must be there."""
        row = self.rows.find(ref)
        if row is None:
            diverge(line, f"a step that has begun; {name_of(self.workflow, ref)} has not", line)
        return row

    def follow(
        self,
        decision: Decision,
        *,
        before: int = 0,
        after: Callable[[int], list[EventDraft]] | None = None,
        waiting_for: str = "",
    ) -> None:
        """What was decided must stand in the history next, behind ``before`` lines that are facts.

        ``after`` gives the facts that stand behind the decision's lines. Closes the loops that are
        whole, as live work does.
        """
        events = [self._fact(n) for n in range(before)] + decision.events
        if after is not None:
            events += after(len(events))
        decision.events = events
        if decision.asked and events:
            events[0].payload["asked"] = decision.asked
        self._fail_output(decision)
        if decision.came_back is not None:
            self.compensation = saga.verdict(self.workflow, decision.snapshot)
        elif decision.ended:
            self._conclude(decision)
        for draft in decision.events:
            self._compare(draft)
        self.rows.apply(decision, waiting_for=waiting_for)
        self.snapshot = decision.snapshot
        self.state, self.waiting_for = decision.run_state, decision.waiting_for
        for position in decision.loops_done:
            self.follow(
                planning.close_loop(self.workflow, self.snapshot, position, self.conditions)
            )

    def _fact(self, ahead: int) -> EventDraft:
        """A line that is taken as it stands; what conditions said is put there anew."""
        line = self.log.peek(ahead)
        if line is None:
            diverge(None, "a line", None)
        payload = {name: value for name, value in line.payload.items() if name != "asked"}
        return EventDraft(line.type, self.ref(line) if line.step else None, payload)

    def _compare(self, draft: EventDraft) -> None:
        line = self.log.peek()
        name = name_of(self.workflow, draft.ref)
        if (
            line is None
            or line.type != draft.type
            or line.step != name
            or line.payload != draft.payload
        ):
            sequence = line.seq if line is not None else self.log.last + 1
            raise Diverged(
                Difference(
                    sequence=sequence, expected=shown_draft(draft, name), recorded=shown(line)
                )
            )
        self.note()

    def note(self) -> Recorded:
        """Take the next line, and count it."""
        line = self.log.take()
        kind = line.type
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind in _STEP_ENDS:
            key = line.step.partition("[")[0]
            self.ended_at[key] = line.seq
            if kind == "step.completed" and key == line.step:
                self._on_route(key)
        elif kind == "router.decided":
            ref = self.ref(line)
            if ref.item is None:
                self.routes[ref.position] = tuple(line.payload["routes"])
        return line

    def _on_route(self, key: str) -> None:
        if self.workflow.step(key).undoes is None:
            self.route.append(key)

    def _fail_output(self, decision: Decision) -> None:
        """The run's ``output`` failed, and there is something to undo first: taken as recorded."""
        line = self.log.peek(len(decision.events))
        if line is None or line.type != "run.failing" or decision.came_back is not None:
            return
        completes = decision.run_state is RunState.COMPLETED and decision.snapshot.verdict is None
        if completes and saga.standing(self.workflow, decision.snapshot):
            planning.fail_output(self.workflow, decision, error_of(line).as_json())

    def _conclude(self, decision: Decision) -> None:
        """The end's own line. Its price, and an ``output`` that failed, are taken as recorded."""
        line = self.log.peek(len(decision.events))
        payload = line.payload if line is not None else {}
        words = last_words(self.workflow, decision, output_failure=_output_failure(decision, line))
        so_far = Tally(self.route[:MAX_ROUTE], self.counts)
        said = summary(self.workflow, decision, so_far, cost=0)
        said["cost_usd"] = payload.get("summary", {}).get("cost_usd")
        kind = f"run.{decision.run_state}"
        decision.events.append(EventDraft(kind, None, words.event(said)))
        self.outcome, self.compensation = words.outcome, words.compensation
        self.error, self.warnings = words.error, decision.snapshot.warnings


def _output_failure(decision: Decision, line: Recorded | None) -> str:
    if decision.run_state is not RunState.COMPLETED or line is None or line.type != "run.failed":
        return ""
    message = str((line.payload.get("error") or {}).get("message", ""))
    if decision.snapshot.verdict is not None or not message.startswith(OUTPUT_FAILED):
        return ""
    return message.removeprefix(OUTPUT_FAILED)
