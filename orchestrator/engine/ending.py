"""The end of a run: its output, its outcome, the summary, and who is told."""

from __future__ import annotations

from typing import Any

from orchestrator.conf import engine_settings
from orchestrator.core import planning, saga
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision
from orchestrator.core.endings import LastWords, last_words, output_error, summary
from orchestrator.core.errors import ConditionError
from orchestrator.core.snapshot import Code, Snapshot
from orchestrator.core.states import RunState
from orchestrator.engine.values import Values
from orchestrator.models import attempts, outbox_rows, rows
from orchestrator.models.rows import RunRow


def final_words(
    decision: Decision, values: Values, *, subject_cost: int | None
) -> dict[str, Any] | None:
    """What the run row gets at its end, and under ``event`` the payload of the terminal event; see
    ``worked_out``. None: there is something to undo first, and the end is yet to come.
    """
    found = worked_out(decision, values)
    if found is None:
        return None
    output, words = found
    return {
        "compensation": words.compensation,
        "output": output,
        "error": words.error,
        "outcome": words.outcome,
        "warnings": decision.snapshot.warnings,
        "event": words.event(_summary(values, decision, subject_cost)),
    }


def worked_out(decision: Decision, values: Values) -> tuple[Any, LastWords] | None:
    """The run's output, and how it ends.

    An ``output`` that cannot be evaluated fails the run (``condition_error``): the decision is
    changed accordingly. None: then there is something to undo first, and the end is yet to come.
    """
    snapshot = decision.snapshot
    output, output_failure = None, ""
    values.see(snapshot)
    if decision.run_state is RunState.COMPLETED:
        try:
            output = run_output(values)
        except ConditionError as failure:
            output_failure = str(failure)
            if snapshot.verdict is not None:  # ended early: what the step said is the result
                output = _early_output(values, snapshot.verdict.step)
            elif saga.standing(values.workflow, snapshot):
                planning.fail_output(values.workflow, decision, output_error(output_failure))
                return None
    return output, last_words(values.workflow, decision, output_failure=output_failure)


def run_output(values: Values) -> Any:
    """The run's output: the document's template, else the outputs of all last steps by key."""
    workflow = values.workflow
    if workflow.output is not None:
        by_key = workflow.by_key
        values.load(by_key[key] for key in workflow.output.references if key in by_key)
        return workflow.output.render(values.scope())
    last = workflow.last_steps
    values.load(step.position for step in last)
    return {s.key: values.outputs[s.position] for s in last if s.position in values.outputs}


def _early_output(values: Values, key: str) -> Any:
    """The output of the step that ended the run, by its key; the document's own ``output`` may
    name steps that never ran."""
    position = values.workflow.by_key[key]
    values.load([position])
    return {key: values.outputs[position]} if position in values.outputs else None


def _summary(values: Values, decision: Decision, subject_cost: int | None) -> dict[str, Any]:
    """From the lines that this worker wrote since the run was born, else from the history."""
    run = values.run
    tally = run.tally if run.tally is not None else rows.read_tally(run.id)
    return summary(values.workflow, decision, tally, cost=subject_cost or 0)


def is_quiet(run: RunRow, workflow: CompiledWorkflow, decision: Decision) -> bool:
    """Whether the end concerns nobody else: then it needs no transaction of its own."""
    if run.parent_id is not None or decision.run_state is not RunState.COMPLETED:
        return False
    if workflow.output is not None and saga.standing(workflow, decision.snapshot):
        return False  # should the output fail, all of it has to be undone
    return not _subscribers_care(workflow, decision)


def _subscribers_care(workflow: CompiledWorkflow, decision: Decision) -> bool:
    """Whether a question to people may still be open: whoever keeps those closes them then."""
    if not (workflow.asks_people and engine_settings().subscribers.get("run.ended")):
        return False
    return decision.run_state is not RunState.COMPLETED or not _all_answered(
        workflow, decision.snapshot
    )


def _all_answered(workflow: CompiledWorkflow, snapshot: Snapshot) -> bool:
    """Whether each gate has been decided, or never asked; of items only their count is known."""
    return all(
        step.for_each is None and snapshot.code(step.position) in (Code.COMPLETED, Code.SKIPPED)
        for step in workflow.steps
        if step.type == "human_gate"
    )


def tell(run: RunRow, workflow: CompiledWorkflow, decision: Decision) -> list[int]:
    """Outbox messages about the end: to the parent run, and to subscribers; their ids.

    Runs that ask nobody, or whose every question was answered, tell no subscriber: it would cost
    each of them a transaction for nothing.
    """
    back = decision.came_back
    posted = []
    left = saga.left_over(workflow, decision.snapshot)
    if left and (back.whole if back else decision.run_state is not RunState.COMPLETED):
        attempts.left_over(run.id, [step.position for step in left])
    if back is not None:
        return _say_undone(run)
    if run.parent_id is not None:
        payload = {"parent": str(run.parent_id), "parent_step": str(run.parent_step)}
        posted.append(outbox_rows.post("child.ended", run.id, payload))
    if _subscribers_care(workflow, decision):
        posted.append(outbox_rows.post("run.ended", run.id, {"state": str(decision.run_state)}))
    return posted


def _say_undone(run: RunRow) -> list[int]:
    """The run is where it was before it was undone: its parent may wait for that."""
    if run.parent_id is None:
        return []
    payload = {"child": str(run.id), "parent_step": str(run.parent_step)}
    return [outbox_rows.post("child.undone", run.parent_id, payload)]
