"""Child runs: started by the parent's settle, told back through the outbox."""

from __future__ import annotations

from uuid import UUID

from orchestrator.conf import engine_settings
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.errors import ErrorClass, InvalidRequest, NotFound, StepError
from orchestrator.core.outcomes import Failed, StartChild
from orchestrator.core.undo_steps import UNDO
from orchestrator.engine.births import Birth, check_input, conceive, give_birth
from orchestrator.engine.blueprints import SELF, compiled
from orchestrator.engine.change import Change
from orchestrator.engine.settled import Settled
from orchestrator.models import Blueprint, family_rows, outbox_rows
from orchestrator.models.rows import RunRow, StepRow


def refusal(run: RunRow, workflow: CompiledWorkflow, wish: StartChild) -> Failed | None:
    """Why the child cannot be started (depth, pin, input), or None. Reads only."""
    limit = engine_settings().max_depth
    if run.depth >= limit:
        return _failed(ErrorClass.PERMANENT, f"sub-workflows are nested deeper than {limit}")
    try:
        check_input(compiled(_blueprint(run, workflow, wish).pk), wish.input)
    except NotFound as error:
        return _failed(ErrorClass.PERMANENT, str(error))
    except InvalidRequest as error:
        first = error.problems[0]
        return _failed(ErrorClass.SCHEMA_ERROR, f"{wish.name}{first['pointer']}: {first['detail']}")
    return None


def _failed(error_class: ErrorClass, message: str) -> Failed:
    return Failed(error=StepError(error_class=error_class, message=message))


def _blueprint(run: RunRow, workflow: CompiledWorkflow, wish: StartChild) -> Blueprint:
    """The blueprint that the child was pinned to when the parent was published."""
    pin = workflow.pins.get(wish.name)
    if pin is None:
        raise NotFound(f"child workflow {wish.name} is not pinned in this version: publish it anew")
    if pin == SELF:
        return Blueprint.objects.get(pk=run.blueprint_id)
    found = Blueprint.objects.filter(tenant=run.tenant, digest=pin).first()
    if found is None:
        raise NotFound(f"child workflow {wish.name} is pinned to {pin[:12]}, which does not exist")
    return found


def start_child(change: Change, row: StepRow, wish: StartChild) -> Settled:
    """The child's rows, in the transaction that parks its parent's step."""
    run = change.run
    blueprint = _blueprint(run, change.workflow, wish)
    birth = Birth(
        tenant=run.tenant,
        blueprint_id=blueprint.pk,
        workflow_name=blueprint.name,
        version=_version(run, change.workflow, wish, blueprint),
        input=wish.input,
        actor=run.started_by,
        correlation_id=run.correlation_id,
        trigger={"type": "parent", "run": str(run.id), "step": row.key + row.scope},
        traceparent=run.traceparent,
        parent=run.id,
        parent_step=row.id,
        depth=run.depth + 1,
        run_id=change.child_id,
    )
    return give_birth(conceive(birth, compiled(blueprint.pk)))


def ask_to_undo(run_id: UUID, row: StepRow) -> list[int]:
    """Messages to the completed children of the step that ``row``, a hidden one, undoes; the step
    waits by now. A child that is still under way has been told to end, and undoes itself; one that
    ended otherwise has: what it could not undo is tried again when this step is. With no child
    left there is nothing to wait for."""
    named = {"undo_step": str(row.id)}
    asked = [
        outbox_rows.post(
            "child.undo",
            run_id,
            named | {"child": str(child.id), "parent_step": str(child.step_id)},
        )
        for child in family_rows.children_of(run_id, row.key.removeprefix(UNDO))
        if child.stands or (row.attempt > 1 and child.compensation == "partial")
    ]
    return asked or [outbox_rows.post("child.undone", run_id, named)]


def _version(
    run: RunRow, workflow: CompiledWorkflow, wish: StartChild, blueprint: Blueprint
) -> int:
    """The number the child is shown with: written in the reference, its own, or as published."""
    if "@" in wish.name:
        return int(wish.name.partition("@")[2])
    if workflow.pins.get(wish.name) == SELF:
        return run.workflow_version
    return blueprint.version
