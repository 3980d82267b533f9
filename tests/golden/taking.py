"""From the database to the stored form of golden histories."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db import transaction

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import DECISIONS
from orchestrator.core.undo_steps import UNDO_CHILD
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Run, histories
from tests.golden import store


def recorded_runs() -> list[dict[str, Any]]:
    """All runs of the database, in the stored form."""
    ids = list(Run.objects.order_by("id").values_list("id", flat=True))
    found = {told.run_id: told for told in histories.read_told(ids)}
    return [_recorded(run, found[run.pk]) for run in Run.objects.order_by("id")]


def _undoable(workflow: CompiledWorkflow) -> list[str]:
    """The children that have something to undo, as the workflow was compiled with."""
    undos = (step for step in workflow.compensations if step.type == UNDO_CHILD)
    return sorted({step.config["workflow"] for step in undos})


def _recorded(run: Run, told: histories.Told) -> dict[str, Any]:
    workflow, row = compiled(run.blueprint_id), told.stored()
    with transaction.atomic():
        ((_, lines),) = ((i, list(found)) for i, found in histories.read_histories([run.pk]))
    steps = [{**asdict(step), "ref": list(step.ref)} for step in told.steps]
    order = [step.key for step in workflow.forward]
    document = run.blueprint.document
    return {
        "document": document | {"steps": {key: document["steps"][key] for key in order}},
        "pins": run.blueprint.pins,
        **({"undoable": children} if (children := _undoable(workflow)) else {}),
        "input": run.input,
        "decisions": DECISIONS,
        "end": {
            name: getattr(row, name) for name in row.__slots__ if name not in ("snapshot", "steps")
        }
        | {"snapshot": store.snapshot_as_json(row.snapshot), "steps": steps},
        "history": [list(line) for line in lines],
    }
