"""What an attempt that asks a model gets from its run: a journal, a desk, who vouched for what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from orchestrator.core import briefing, trust
from orchestrator.core.compiled import StepPlan
from orchestrator.core.states import STEP_TERMINAL, StepState
from orchestrator.engine import aliases
from orchestrator.engine.journal import StepJournal
from orchestrator.engine.model_desk import StepDesk
from orchestrator.engine.values import Values
from orchestrator.models import rows
from orchestrator.models.call_rows import Holder
from orchestrator.models.rows import RunRow, StepRow

_ASKING = frozenset({"agent", "router"})


def model_parts(
    run: RunRow, step: StepPlan, row: StepRow, values: Values, holder: Holder
) -> dict[str, Any]:
    """The fields of a ``StepContext`` that only steps which ask models need; {} for the others."""
    if step.type not in _ASKING:
        return {}
    aliases.cache.refresh()
    name = row.key + row.scope
    return {
        "journal": StepJournal(holder=holder, name=name, round=row.round, attempt=row.attempt),
        "desk": StepDesk(holder=holder, row=row, name=name, tenant=run.tenant),
        "strangers": partial(_strangers, values, step),
        "brief": partial(_brief, values),
    }


def _strangers(
    values: Values, step: StepPlan, templates: Sequence[Any], *, with_input: bool
) -> tuple[str, ...]:
    workflow = values.workflow
    gates = trust.gates_before(workflow, step.position)
    values.load(gates)
    approved = [gate for gate in gates if trust.agreed(values.outputs.get(gate))]
    return trust.strangers(workflow, step, templates, with_input=with_input, approved=approved)


def _brief(values: Values) -> str:
    workflow, snapshot = values.workflow, values.snapshot
    own = [step for step in workflow.steps if step.undoes is None]
    states = [(step.key, snapshot.state(step.position)) for step in own]
    pending = [
        f"{step.key} ({step.type}): {state}"
        for step, (_, state) in zip(own, states, strict=True)
        if state not in STEP_TERMINAL and state is not StepState.RUNNING
    ]
    outputs = rows.last_outputs(values.run.id, briefing.LAST_OUTPUTS)
    return briefing.brief([(key, str(state)) for key, state in states], outputs, pending)
