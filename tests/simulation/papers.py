"""Simulations by intent."""

from __future__ import annotations

from typing import Any

from orchestrator import engine
from orchestrator.engine import Simulation, Wanted
from orchestrator.models import Run
from tests.engine.runs import TENANT, registered


def simulated(
    steps: dict[str, Any], data: Any = None, answers: Any = None, **more: Any
) -> Simulation:
    """These steps on paper."""
    asked = {name: more.pop(name) for name in ("max_answers",) if name in more}
    blueprint = registered(steps, **more)
    wanted = Wanted(
        tenant=TENANT,
        actor="user:tester",
        workflow=engine.compiled(blueprint.pk),
        version=1,
        blueprint_id=blueprint.pk,
        input={} if data is None else data,
        answers={} if answers is None else answers,
    )
    return engine.simulate(wanted, **asked)


def again(run: Run, **answers: Any) -> Simulation:
    """A stored run once more, on paper."""
    run.refresh_from_db()
    return engine.simulate(
        Wanted(
            tenant=TENANT,
            actor="user:tester",
            workflow=engine.compiled(run.blueprint_id),
            version=1,
            blueprint_id=run.blueprint_id,
            input=run.input,
            answers=answers,
            recorded=run,
        )
    )


def states(found: Simulation) -> dict[str, str]:
    return {step.name: step.state for step in found.path}


def outputs(found: Simulation) -> dict[str, Any]:
    return {step.name: step.output for step in found.path if step.output is not None}
