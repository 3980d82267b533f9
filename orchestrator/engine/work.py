"""One attempt in the hands of a worker: what it holds, and running its body."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from orchestrator.authoring import LeaseLost
from orchestrator.core.compiled import CompiledWorkflow, ForEach, StepPlan
from orchestrator.core.decision import Ref
from orchestrator.core.effects import Course, EffectEnd, EffectPlan, key_problem
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.expressions import compile_expression, compile_template
from orchestrator.core.outcomes import Failed, Outcome, Succeeded, Usage
from orchestrator.core.schemas import compile_schema
from orchestrator.core.settling import Expanded, NotBegun
from orchestrator.crash import crash_point
from orchestrator.engine import effects
from orchestrator.engine.calls import Caller, call_tool
from orchestrator.engine.leases import keeper
from orchestrator.engine.surroundings import model_parts
from orchestrator.engine.values import Values
from orchestrator.executors.base import StepContext
from orchestrator.executors.json_output import output_error, plain_json
from orchestrator.executors.registry import get_executor
from orchestrator.models.call_rows import Holder
from orchestrator.models.rows import RunRow, StepRow

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Prepared:
    """What was worked out before the claim: the input and the effect, or why not.

    ``items`` is the list of a for_each that is about to be expanded; of a compensation the indexes
    of the items that it undoes.
    """

    input: Any = None
    effect: EffectPlan | None = None
    items: list[Any] | None = None
    error: StepError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an attempt answered, and what became of its effect (None: it has none)."""

    outcome: Outcome | Expanded | NotBegun
    effect: EffectEnd | None = None


@dataclass(slots=True)
class Work:
    """An attempt under our lease. ``at`` is the database's instant of the claim, ``asked_at`` our
    own clock's (``time.monotonic``) just before it. ``owes_input``: the claim was written before
    the input was known, so the settle stores it. ``company``: attempts that were claimed with it;
    their bodies run after its own."""

    run: RunRow
    workflow: CompiledWorkflow
    values: Values
    step: StepPlan
    row: StepRow
    prepared: Prepared
    at: datetime
    asked_at: float
    owes_input: bool = False
    company: list[Work] = field(default_factory=list)

    def is_stale(self, lease: timedelta) -> bool:
        """Whether this process stood still for so long that the lease is over before the body
        began: somebody else may have the step by now, so the body must not run."""
        return time.monotonic() - self.asked_at >= lease.total_seconds()

    @property
    def ref(self) -> Ref:
        """The step, or its item, by position."""
        return Ref(self.row.position, self.row.index)

    @property
    def calls_outside(self) -> bool:
        """Whether the attempt gets as far as its service: not when its input or key was wrong, and
        not when the receipt was there or the key is somebody else's."""
        prepared = self.prepared
        if prepared.error is not None:
            return False
        return prepared.effect is None or prepared.effect.course in (Course.CALL, Course.DOUBT)

    @property
    def deadline(self) -> datetime:
        """When this attempt's time is over, on the database's clock."""
        return self.at + timedelta(seconds=self.step.timeout_s)


def worker_name(*, company: int = 0) -> str:
    """Who holds a lease: host, process, thread; and with how many others it was claimed."""
    name = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident() % 100_000}"
    return f"{name}{_WITH}{company}" if company else name


def company_of_claim(worker: str) -> int:
    """With how many others the step was claimed that this ``worker`` holds."""
    count = worker.rpartition(_WITH)[2]
    return int(count) if _WITH in worker and count.isdigit() else 0


_WITH = "+"


def prepare(values: Values, step: StepPlan, row: StepRow | None) -> Prepared:
    """Evaluate input and effect key before the claim. A failing expression is kept, and becomes
    the attempt's failure once it is claimed; it never passes as an empty input."""
    try:
        if step.for_each is not None and (row is None or row.index is None):
            return Prepared(items=_items(values, step, step.for_each))
        if step.for_each is not None and step.undoes is not None:
            values.learn_items(step.undoes)
        elif step.undoes is not None and step.undoes in values.snapshot.acted:
            values.learn_receipt(step.undoes)
        data = values.step_input(step, row)
        if "input_schema" in step.config:
            _check_input(data, step.config["input_schema"])
        return Prepared(input=data, effect=_plan_effect(values, step, row, data))
    except ConditionError as error:
        failure = StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error))
    except _BadInput as error:
        failure = StepError(error_class=ErrorClass.SCHEMA_ERROR, message=str(error))
    except _NO_VALUE as error:  # of the values, not of the database: it would be the same each time
        logger.exception("the input of step %s of run %s", step.key, values.run.id)
        message = f"its input cannot be worked out ({type(error).__name__})"
        failure = StepError(error_class=ErrorClass.PERMANENT, message=message)
    return Prepared(error=failure)


_NO_VALUE = (ArithmeticError, RecursionError, TypeError, ValueError)


def _plan_effect(
    values: Values, step: StepPlan, row: StepRow | None, data: Any
) -> EffectPlan | None:
    if step.effect_key is None:
        return None
    values.load(_positions(values, step.effect_key.references))
    key = step.effect_key.render(values.step_scope(step, row))
    problem = key_problem(key)
    if problem is not None:
        raise ConditionError(problem)
    return effects.plan_effect(
        tenant=values.run.tenant,
        step=step,
        key=str(key),
        data=data,
        step_id=row.id if row is not None else None,
    )


class _BadInput(ValueError):
    """The evaluated input breaks the step's ``input_schema``."""


def _check_input(data: Any, schema: Mapping[str, Any]) -> None:
    problems = compile_schema(schema).check(data)
    if problems:
        first = problems[0]
        raise _BadInput(f"input does not fit input_schema: {first.pointer or '/'}: {first.message}")


def _positions(values: Values, keys: frozenset[str]) -> list[int]:
    return [values.workflow.by_key[key] for key in keys if key in values.workflow.by_key]


def _items(values: Values, step: StepPlan, loop: ForEach) -> list[Any]:
    if step.undoes is not None:
        return values.find_completed_items(step.undoes)
    values.load(_positions(values, loop.items.references))
    value = loop.items.render(values.scope())
    if not isinstance(value, list):
        raise ConditionError(f"for_each.items is no list but {type(value).__name__}")
    return value


def perform(work: Work, *, max_items: int) -> Answer:
    """Run the body, outside any transaction: what it raised is its failure.

    Raises only StoodStill: somebody else may have the step by now, so there is no answer."""
    prepared = work.prepared
    if prepared.error is not None:
        return Answer(outcome=Failed(error=prepared.error))
    if prepared.items is not None:
        return Answer(outcome=expand(prepared.items, work.step, max_items))
    context = step_context(work)
    if prepared.effect is None:
        return Answer(outcome=_execute(work, context))
    answered = effects.apply_effect(
        prepared.effect, work.step, context, lambda: _execute(work, context)
    )
    return Answer(outcome=answered.outcome, effect=answered.effect)


def expand(items: list[Any], step: StepPlan, max_items: int) -> Failed | Expanded:
    """A for_each looked at its list: so many items, or too many."""
    if step.undoes is not None:
        return Expanded(total=len(items), only=tuple(items))
    if len(items) <= max_items:
        return Expanded(total=len(items))
    message = f"for_each has {len(items)} items; at most {max_items} are allowed"
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=message))


class StoodStill(Exception):
    """This process stood still past its lease; the outside has not been called by this attempt."""


def _execute(work: Work, context: StepContext) -> Outcome:
    crash_point("body:before")
    if work.prepared.effect is not None and not keeper.is_ours(work.row.id):
        raise StoodStill  # the last look before the outside hears of it
    try:
        outcome = get_executor(work.step.type).execute(context)
        crash_point("body:after")
    except ConditionError as error:
        return Failed(error=StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error)))
    except Exception as error:
        logger.exception("step %s of run %s raised", work.step.key, work.run.id)
        message = f"{type(error).__name__}: {error}"
        return Failed(error=StepError(error_class=ErrorClass.TRANSIENT, message=message))
    return outcome if work.step.type in _CHECKS_ITSELF else checked(outcome, work.step)


_CHECKS_ITSELF = frozenset({"tool", "agent"})


def checked(outcome: Outcome, step: StepPlan) -> Outcome:
    """Only JSON that PostgreSQL can hold, and that fits ``output_schema``, is an output."""
    if not isinstance(outcome, Succeeded):
        return outcome
    try:
        output = plain_json(outcome.output)
        failure = output_error(output, step.config.get("output_schema"))
    except ValueError as error:
        failure = StepError(error_class=ErrorClass.SCHEMA_ERROR, message=f"output: {error}")
        output = None
    if failure is not None:
        return Failed(error=failure, usage=outcome.usage)
    return replace(outcome, output=output)


def step_context(work: Work) -> StepContext:
    """Everything the body may know of its attempt."""
    run, row = work.run, work.row
    scope = work.values.step_scope(work.step, row)

    def render(value: Any, *, bare: bool = False) -> Any:
        program = (
            compile_expression(value, names=None) if bare else compile_template(value, names=None)
        )
        work.values.load(_positions(work.values, program.references))
        if bare:
            return compile_expression(value, names=None).evaluate(scope)
        return compile_template(value, names=None).render(scope)

    holder = Holder(run_id=run.id, step_id=row.id, fence=row.fence)
    caller = Caller(holder=holder, name=row.key + row.scope)
    context = StepContext(
        run_id=str(run.id),
        tenant=run.tenant,
        workflow=run.workflow,
        version=run.workflow_version,
        actor=run.started_by,
        correlation_id=run.correlation_id,
        traceparent=run.traceparent,
        step_key=row.key,
        item_scope=row.scope,
        attempt=row.attempt,
        fence=row.fence,
        config=work.step.config,
        input=work.prepared.input,
        scope=scope,
        render=render,
        idempotency_key=work.prepared.effect.key if work.prepared.effect else None,
        deadline=work.deadline,
        started_at=work.at,
        heartbeat=partial(_heartbeat, row.id),
        call_tool=lambda request: call_tool(caller, context, request),
        **model_parts(run, work.step, row, work.values, holder),
    )
    return context


def _heartbeat(step_id: UUID) -> None:
    """A long body asks between two calls; the lease itself is renewed by the process."""
    if not keeper.is_ours(step_id):
        raise LeaseLost("the lease of this step is over: somebody else may have it by now")


def usage_of(outcome: Outcome | Expanded | NotBegun) -> Mapping[str, Any]:
    """The cost fields of a step's move; an unknown price is unknown, never zero."""
    usage = getattr(outcome, "usage", None)
    if not isinstance(usage, Usage) or usage == _FREE:
        return {"cost": 0}
    return {
        "cost": usage.cost_microusd,
        "cost_unknown": usage.cost_microusd is None,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "model": usage.model,
    }


_FREE = Usage()
