"""The world of a run on paper: values in memory, answers without a call, notes of what would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from orchestrator.conf import engine_settings
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.effects import EffectPlan
from orchestrator.core.endings import LastWords
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import (
    Answer,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.replay_rows import Row
from orchestrator.core.settling import Expanded
from orchestrator.core.simulating import Paper, Parked, Told
from orchestrator.core.simulation_answers import Answers, Given
from orchestrator.core.states import StepState
from orchestrator.core.undo_steps import UNDO
from orchestrator.engine import effects, ending, paper_waits
from orchestrator.engine.change import scope_of
from orchestrator.engine.paper_bodies import (
    Recorded,
    Said,
    Source,
    assumption,
    is_called,
    may_cost,
    say,
)
from orchestrator.engine.paper_rows import step_row
from orchestrator.engine.paper_setting import PaperSetting
from orchestrator.engine.paper_waits import Asked, Ended, end_of
from orchestrator.engine.settle import output_of
from orchestrator.engine.values import Values
from orchestrator.engine.work import Prepared, Work, checked, expand, prepare, step_context
from orchestrator.executors.registry import get_executor
from orchestrator.models.rows import RunRow, StepRow


@dataclass(slots=True, kw_only=True)
class Seen:
    """What became known of a step, or item, on paper. ``costs`` in micro-dollars, None: unknown."""

    step: StepPlan
    scope: str
    began: float
    ended: float = 0.0
    n_asked: int = 0
    source: Source = Source.COMPUTED
    input: Any = None
    output: Any = None
    why: str = ""
    shown: Mapping[str, Any] = field(default_factory=dict)
    decision: str = ""
    effects: dict[str, EffectPlan] = field(default_factory=dict)
    seconds: float | None = 0.0
    microusd: float | None = 0.0
    waiting_since: float | None = None
    child: PaperRun | None = None
    assumed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The key with its scope."""
        return self.step.key + self.scope


class PaperValues(Values):
    """What expressions of a run on paper see: what its steps answered so far."""

    def __init__(self, run: RunRow, workflow: CompiledWorkflow, world: PaperRun) -> None:
        super().__init__(run, workflow)
        self._world = world

    def find_outputs(self, positions: set[int]) -> Mapping[int, Any]:
        """None: whatever has an output was learned when it was answered."""
        del positions
        return {}

    def find_item_outputs(self, key: str) -> list[Any]:
        """As the items were answered."""
        position = self.workflow.by_key[key]
        items = self._world.items.get(position, [])
        said = self._world.item_outputs.get(position, {})
        return [said.get(index) for index in range(len(items))]

    def find_order(self, positions: Sequence[int]) -> Sequence[int]:
        """As they completed on paper."""
        return [position for position in self._world.completed if position in positions]

    def find_completed_items(self, position: int) -> list[int]:
        """By the rows on paper."""
        return list(self._world.paper.rows.completed_items(position))


Starter = Callable[["PaperRun", Seen, StartChild, float], "PaperRun | Failed"]


class PaperRun:
    """One run on paper, and all that became known of it; ``core.simulating.World``."""

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        run: RunRow,
        workflow: CompiledWorkflow,
        *,
        setting: PaperSetting,
        answers: Answers,
        recorded: Mapping[str, Recorded],
        begins_at: float,
        start_child: Starter,
    ) -> None:
        self.run, self.workflow, self.setting = run, workflow, setting
        self.answers, self.recorded = answers, recorded
        self.begins_at, self.start_child = begins_at, start_child
        self.figures = setting.of_workflow(run.workflow)
        self.seen: dict[Ref, Seen] = {}
        self.items: dict[int, list[Any]] = {}
        self.item_outputs: dict[int, dict[int, Any]] = {}
        self.previous: dict[Ref, Any] = {}
        self.completed: list[int] = []
        self.words: LastWords | None = None
        self.output: Any = None
        self.values = PaperValues(run, workflow, self)
        self.paper = Paper(workflow, self)

    @property
    def conditions(self) -> Values:
        """The values behind the document's conditions."""
        return self.values

    def count(self) -> None:
        """Another answer is asked for."""
        self.setting.count()

    # -- bodies --------------------------------------------------------------------------------

    def body(self, ref: Ref, row: Row, at: float) -> Told:
        """What this attempt answers."""
        step, step_row = self.workflow.steps[ref.position], self._row(ref, row)
        prepared = prepare(self.values, step, step_row)
        if prepared.error is not None:
            self._note(ref, step, at)
            return Told(outcome=Failed(error=prepared.error))
        if prepared.items is not None:
            self._note(ref, step, at)
            return Told(outcome=self._expand(ref, step, prepared.items))
        seen = self._note(ref, step, at)
        seen.input = prepared.input
        said = self._say(seen, step, step_row, prepared, at)
        return self._told(seen, said)

    def _say(self, seen: Seen, step: StepPlan, row: StepRow, prepared: Prepared, at: float) -> Said:
        """The answer, behind the effect that it would have."""
        plan = None if prepared.effect is None else self.setting.planned(prepared.effect)
        prepared.effect = plan
        if plan is not None:
            seen.effects.setdefault(plan.key, plan)
        known = None if plan is None else effects.without_call(plan)
        if known is not None:
            return Said(outcome=known.outcome, source=Source.RECEIPT)
        work = Work(
            run=self.run,
            workflow=self.workflow,
            values=self.values,
            step=step,
            row=row,
            prepared=prepared,
            at=self._instant(at),
            asked_at=0.0,
        )
        recorded = self.recorded.get(seen.name)
        said = say(step, step_context(work), self._given(seen), recorded, self.workflow)
        seen.shown = said.shown
        if plan is not None:
            said = self.setting.settled(seen.step, seen.name, plan, said, seen.assumed)
        return said

    def _told(self, seen: Seen, said: Said) -> Told:
        seen.source, given = said.source, self._given(seen)
        seen.n_asked += 1
        if said.source is Source.ASSUMED:
            seen.assumed.append(assumption(said.outcome))
        if isinstance(said.outcome, Routed):
            seen.why = said.outcome.why
        if said.source in (Source.COMPUTED, Source.RECEIPT) and not is_called(seen.step):
            return Told(outcome=said.outcome)
        if said.source is Source.RECEIPT:
            return Told(outcome=said.outcome)
        seconds = self._took(seen, given)
        self._price(seen, given)
        limit = seen.step.timeout_s
        if seconds > limit:
            words = f"the step did not end within {limit:g} s"
            late = StepError(error_class=ErrorClass.TIMEOUT, message=words)
            return Told(outcome=Failed(error=late), seconds=limit)
        return Told(
            outcome=said.outcome, seconds=seconds, in_doubt=said.in_doubt, warning=said.warning
        )

    def _took(self, seen: Seen, given: Given | None) -> float:
        figures = self.figures.get(seen.step.key)
        if given is not None and given.took is not None:
            seconds: float | None = given.took.total_seconds()
        elif figures is not None:
            seconds = figures.seconds[self.setting.pick]
        else:
            seconds = None
        seen.seconds = None if seconds is None or seen.seconds is None else seen.seconds + seconds
        return seconds or 0.0

    def _price(self, seen: Seen, given: Given | None) -> None:
        figures = self.figures.get(seen.step.key)
        price: float | None = None
        if given is not None and given.cost_usd is not None:
            price = float(given.cost_usd)
        elif figures is not None and figures.microusd is not None:
            price = figures.microusd[self.setting.pick]
        elif not may_cost(seen.step):
            price = 0.0
        seen.microusd = None if price is None or seen.microusd is None else seen.microusd + price

    def _expand(self, ref: Ref, step: StepPlan, items: list[Any]) -> Failed | Expanded:
        outcome = expand(items, step, engine_settings().max_items)
        if isinstance(outcome, Expanded) and step.undoes is None:
            self.items[ref.position] = items
            self.item_outputs[ref.position] = {}
        return outcome

    # -- waits ---------------------------------------------------------------------------------

    def wait(self, ref: Ref, row: Row, parked: Parked, at: float) -> Told | None:
        """What ends this wait."""
        del row
        seen = self.seen[ref]
        if seen.waiting_since is None:
            seen.waiting_since = at
        if isinstance(parked, UndoChildren):
            return self._undo(seen, parked)
        if isinstance(parked, StartChild):
            return self._child(seen, parked, at)
        ended = self._end_of(seen, parked, at)
        return None if ended is None else self._resumed(seen, ended)

    def _end_of(self, seen: Seen, waiting: Waiting, at: float) -> Ended | None:
        figures = self.figures.get(seen.step.key)
        usual = 0.0 if figures is None else figures.seconds[self.setting.pick]
        given = self._given(seen)
        asked = Asked(
            waiting=waiting,
            step=seen.step,
            workflow=self.workflow,
            given=given,
            recorded=self.recorded.get(seen.name),
            usual=usual,
            at=self._instant(at),
            since=at - (seen.waiting_since or 0.0),
        )
        ended = end_of(asked)
        if ended is None or ended.answer.kind == "timer":
            return ended
        if figures is None and not (given is not None and given.after):
            seen.seconds = None
        return ended

    def _resumed(self, seen: Seen, ended: Ended) -> Told:
        """What the answer means, by the executor's own word."""
        seen.source = ended.source
        seen.n_asked += 1
        payload = ended.answer.payload
        if ended.answer.kind == "decision":
            seen.decision = str(payload["decision"])
        elif seen.shown:
            seen.decision = "nobody decides"
        if ended.source is Source.ASSUMED:
            seen.assumed.append(paper_waits.assumption(ended.answer))
        config = seen.step.config
        outcome = get_executor(seen.step.type).resume(config, ended.answer, upstream=seen.input)
        return Told(outcome=checked(outcome, seen.step), seconds=ended.seconds)

    def _child(self, seen: Seen, wish: StartChild, at: float) -> Told | None:
        given = self._given(seen)
        if given is not None and (given.says("output") or given.error is not None):
            return self._told_child(seen, given)
        child = self.start_child(self, seen, wish, at)
        if isinstance(child, Failed):
            return Told(outcome=child)
        seen.child, seen.source = child, Source.CHILD
        seen.n_asked += 1
        child.paper.play()
        limit = seen.step.child_timeout_s
        if limit is not None and (not child.paper.ended or child.paper.now > limit):
            words = f"the child did not end within {limit:g} s"
            late = StepError(error_class=ErrorClass.TIMEOUT, message=words)
            return Told(outcome=Failed(error=late), seconds=limit)
        if not child.paper.ended:
            return None
        outcome = get_executor(seen.step.type).resume(
            seen.step.config, Answer(kind="child", payload=child.told()), upstream=seen.input
        )
        return Told(outcome=checked(outcome, seen.step), seconds=child.paper.now)

    def _told_child(self, seen: Seen, given: Given) -> Told:
        """The child's end as given: no run of it is played."""
        seen.source = Source.GIVEN
        seen.n_asked += 1
        self._price(seen, given)
        seconds = given.after.total_seconds() if given.after else 0.0
        if given.error is not None:
            return Told(outcome=Failed(error=given.error.as_error()), seconds=seconds)
        return Told(outcome=checked(Succeeded(output=given.output), seen.step), seconds=seconds)

    def _undo(self, seen: Seen, wish: UndoChildren) -> Told:
        given = self._given(seen)
        if given is not None and given.error is not None:
            return Told(outcome=Failed(error=given.error.as_error()))
        seen.assumed.append(f"the child workflow {wish.name} undoes all that it did")
        undone = self.workflow.by_key[seen.step.key.removeprefix(UNDO)]
        child = self.seen[Ref(undone)].child
        name = "child" if child is None else str(child.run.id)
        told = [{"id": name, "state": "completed", "compensation": "full"}]
        answer = Answer(kind="child", payload={"children": told})
        outcome = get_executor(seen.step.type).resume(seen.step.config, answer, upstream=None)
        return Told(outcome=outcome)

    def told(self) -> dict[str, Any]:
        """What a parent hears of this run's end."""
        words = self.words
        return {
            "id": str(self.run.id),
            "state": str(self.paper.state),
            "output": self.output,
            "error": None if words is None else words.error,
            "outcome": "" if words is None else words.outcome,
            "compensation": "none" if words is None else words.compensation or "none",
        }

    # -- what is learned -----------------------------------------------------------------------

    def answered(self, ref: Ref, outcome: Outcome | Expanded) -> None:
        """Conditions will ask for its output, or for its item."""
        if ref.item is None:
            self.values.learn(ref.position, output_of(outcome))
        row = self.paper.rows.find(ref)
        if row is not None:
            self.values.focus(self._row(ref, row))

    def decided(self, ref: Ref, decision: Decision, outcome: Outcome | Expanded) -> None:
        """Only a completed step has an output; a round's becomes ``previous``."""
        subject = decision.subject
        if subject is None:
            return
        seen, at = self.seen.get(ref), self.paper.now
        if seen is not None:
            seen.ended = at
        if subject.again:
            self.previous[ref] = output_of(outcome)
        if subject.to is not StepState.COMPLETED:
            if ref.item is None:
                self.values.outputs.pop(ref.position, None)
            return
        if seen is not None:
            seen.output = output_of(outcome)
        if ref.item is None:
            self.completed.append(ref.position)
        else:
            self.item_outputs.setdefault(ref.position, {})[ref.item] = output_of(outcome)

    def close(self, position: int) -> None:
        """A for_each's output is the list of its items'."""
        step = self.workflow.steps[position]
        if step.undoes is None:
            self.values.learn(position, self.values.find_item_outputs(step.key))

    def closed(self, position: int, decision: Decision) -> None:
        """Only a completed one has an output."""
        self.seen[Ref(position)].ended = self.paper.now
        if decision.subject is not None and decision.subject.to is StepState.COMPLETED:
            self.completed.append(position)
        else:
            self.values.outputs.pop(position, None)

    def end(self, decision: Decision) -> None:
        """The run's own output, and how it ends."""
        found = ending.worked_out(decision, self.values)
        if found is not None:
            self.output, self.words = found

    # -- rows on paper -------------------------------------------------------------------------

    def _note(self, ref: Ref, step: StepPlan, at: float) -> Seen:
        if ref not in self.seen:
            self.seen[ref] = Seen(step=step, scope=scope_of(ref.item), began=at)
        return self.seen[ref]

    def _given(self, seen: Seen) -> Given | None:
        return self.answers.find(seen.step.key, seen.scope, seen.n_asked)

    def _instant(self, at: float) -> datetime:
        return self.setting.started_at + timedelta(seconds=self.begins_at + at)

    def _row(self, ref: Ref, row: Row) -> StepRow:
        step = self.workflow.steps[ref.position]
        items = self.items.get(ref.position if step.undoes is None else step.undoes, [])
        item = None if ref.item is None else items[ref.item]
        return step_row(step, ref, row, item=item, previous=self.previous.get(ref))
