"""From the typed document to the compiled workflow that planning and workers use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.core import compiled
from orchestrator.core.compiled import CompiledWorkflow, Edge, Join, On, StepPlan
from orchestrator.core.definition import (
    AnyStep,
    Document,
    HumanGateStep,
    RouterStep,
    SubWorkflowStep,
    WaitStep,
    document_edges,
    effective_retry,
    effective_timeout,
    run_timeout,
)
from orchestrator.core.document import Edge as DocumentEdge
from orchestrator.core.errors import ErrorClass, InvariantBroken
from orchestrator.core.expressions import Program, compile_expression, compile_template
from orchestrator.core.graph import longest_remaining
from orchestrator.core.policies import Retry
from orchestrator.core.site import Site
from orchestrator.core.undo_steps import (
    COMPENSATION_QUEUE,
    PARKING_TIMEOUT_S,
    UNDO,
    must_know,
    undo_child,
)

_ON = {"completed": On.COMPLETED, "failed": On.FAILED, "skipped": On.SKIPPED, "any": On.ANY}


def compile_workflow(
    document: Document,
    value: Mapping[str, Any],
    *,
    queues: Mapping[str, str],
    pins: Mapping[str, str],
    site: Site = Site(),  # noqa: B008 - immutable
    undoable: Collection[str] = (),
) -> CompiledWorkflow:
    """The workflow ready to run. ``value`` is the document's plain JSON, ``queues`` the default
    queue of each step type, ``pins`` the children's digests, ``site`` what the installation adds,
    ``undoable`` the references to those children that have something to undo. The document must be
    valid."""
    keys = list(document.steps)
    by_key = {key: position for position, key in enumerate(keys)}
    edges = tuple(_edge(index, edge, by_key) for index, edge in enumerate(document_edges(document)))
    ranks = longest_remaining(keys, [(keys[e.source], keys[e.target]) for e in edges])
    owners = {step.fallback: key for key, step in document.steps.items() if step.fallback}
    steps = tuple(
        _step(
            document,
            key,
            edges=edges,
            config=value["steps"][key],
            queue=_queue(document, key, value["steps"][key], queues, site),
            site=site,
            rank=ranks[key],
            owner=by_key[owners[key]] if key in owners else None,
            by_key=by_key,
        )
        for key in keys
    )
    undo = _compensations(document, value, first=len(keys), undoable=undoable, site=site)
    steps += undo
    by_key |= {step.key: step.position for step in undo}
    timeout, clock = run_timeout(document)
    return CompiledWorkflow(
        name=document.name,
        title=document.title or document.name,
        steps=steps,
        edges=edges,
        by_key=by_key,
        max_parallel=document.max_parallel,
        timeout_s=timeout.total_seconds(),
        timeout_is_wall=clock == "wall",
        output=compile_template(value["output"], names=None) if document.has_output else None,
        signals=_signals(document),
        input_schema=document.input,
        pins=dict(pins),
    )


def _compensations(
    document: Document,
    value: Mapping[str, Any],
    *,
    first: int,
    undoable: Collection[str],
    site: Site,
) -> tuple[StepPlan, ...]:
    """One hidden step for each ``compensate`` block, and for each child that has something to undo,
    behind the document's own steps."""
    steps: list[StepPlan] = []
    for place, (key, step) in enumerate(document.steps.items()):
        position = first + len(steps)
        if step.compensate is not None:
            made = _compensation(
                document,
                key,
                outer=value["steps"][key],
                position=position,
                undoes=place,
                site=site,
            )
        elif isinstance(step, SubWorkflowStep) and step.workflow in undoable:
            made = undo_child(key, step.workflow, position=position, undoes=place)
        else:
            continue
        steps.append(made)
    return tuple(steps)


def _compensation(
    document: Document,
    key: str,
    *,
    outer: Mapping[str, Any],
    position: int,
    undoes: int,
    site: Site,
) -> StepPlan:
    block = document.steps[key].compensate
    if block is None:
        raise InvariantBroken(f"step {key} has no compensate block")
    config, service = outer["compensate"], str(outer.get("service") or "")
    timeout = effective_timeout(document.steps[key], document.defaults)
    behind = config if site.service_of(config) else {**config, "service": service}
    return StepPlan(
        position=position,
        key=UNDO + key,
        type="tool",
        queue=site.queue_of(
            config,
            workflow=document.name,
            queue=COMPENSATION_QUEUE,
            priority=document.priority,
        ),
        config={"type": "tool", **config},
        ins=(),
        outs=(),
        join=Join.ALL,
        join_count=1,
        late_cancel=False,
        when=None,
        optional=False,
        input=compile_template(config["input"], names=None) if "input" in config else None,
        merge=compiled.Merge(kind="nested"),
        timeout_s=timeout.total_seconds() if timeout else PARKING_TIMEOUT_S,
        child_timeout_s=None,
        retry=effective_retry(block, document.defaults),
        fallback=None,
        owner=None,
        on_error="fail",
        for_each=_undo_each(document, key, config=outer),
        repeat=None,
        effect_key=compile_template(block.effect.key, names=None) if block.effect else None,
        rank=1,
        undoes=undoes,
        service=site.service_of(behind),
        breaker=site.breaker_of(behind),
        gates=site.gates_of(behind),
    )


def _undo_each(
    document: Document, key: str, *, config: Mapping[str, Any]
) -> compiled.ForEach | None:
    """What a for_each did is undone item by item; one that fails keeps no other from its turn."""
    loop = _for_each(document.steps[key], document, config)
    return None if loop is None else replace(loop, min_success=0)


def _queue(
    document: Document, key: str, config: Mapping[str, Any], queues: Mapping[str, str], site: Site
) -> str:
    """The queue of the step's type; a router that asks a model waits with the agents."""
    step = document.steps[key]
    calls_model = isinstance(step, RouterStep) and step.strategy == "llm"
    own = queues["agent" if calls_model else step.type]
    return site.queue_of(config, workflow=document.name, queue=own, priority=document.priority)


def _edge(index: int, edge: DocumentEdge, by_key: Mapping[str, int]) -> Edge:
    return Edge(
        index=index,
        source=by_key[edge.source],
        target=by_key[edge.target],
        on=_ON[edge.on],
        when=_condition(edge.when),
        routes=None if edge.routes is None else frozenset(edge.routes),
    )


def _condition(text: str | None) -> Program | None:
    return None if text is None else compile_expression(text, names=None)


def _step(  # noqa: PLR0913 - one row of a table, each cell has its own source
    document: Document,
    key: str,
    *,
    edges: tuple[Edge, ...],
    config: Mapping[str, Any],
    queue: str,
    site: Site,
    rank: int,
    owner: int | None,
    by_key: Mapping[str, int],
) -> StepPlan:
    step = document.steps[key]
    position = by_key[key]
    ins = tuple(e for e in edges if e.target == position)
    timeout = effective_timeout(step, document.defaults)
    parks = isinstance(step, HumanGateStep | WaitStep | SubWorkflowStep)
    return StepPlan(
        position=position,
        key=key,
        type=step.type,
        queue=queue,
        config=config,
        ins=ins,
        outs=tuple(e for e in edges if e.source == position),
        join=_JOIN[step.join.kind],
        join_count=step.join.count or 1,
        late_cancel=step.late == "cancel",
        when=_condition(step.when),
        optional=step.optional,
        input=compile_template(config["input"], names=None) if step.has_input else None,
        merge=compiled.Merge(kind=step.merge.kind, expression=_condition(step.merge.expression)),
        timeout_s=PARKING_TIMEOUT_S if parks or timeout is None else timeout.total_seconds(),
        child_timeout_s=(
            timeout.total_seconds() if timeout and isinstance(step, SubWorkflowStep) else None
        ),
        retry=_retry(step, document),
        fallback=by_key[step.fallback] if step.fallback else None,
        owner=owner,
        on_error=step.on_error or document.on_error,
        for_each=_for_each(step, document, config),
        repeat=_repeat(step),
        effect_key=compile_template(step.effect.key, names=None) if step.effect else None,
        rank=rank,
        irreversible=step.irreversible,
        service=site.service_of(config),
        breaker=site.breaker_of(config),
        gates=site.gates_of(config),
        must_know=must_know(step),
    )


_JOIN = {
    "all": Join.ALL,
    "strict": Join.STRICT,
    "any": Join.AT_LEAST,
    "at_least": Join.AT_LEAST,
}


def _retry(step: AnyStep, document: Document) -> Retry:
    """The policy in force. A wait that runs out is an answer, not a hiccup: it is tried again only
    if the step's own ``on`` says so."""
    retry = effective_retry(step, document.defaults)
    parks = isinstance(step, HumanGateStep | WaitStep | SubWorkflowStep)
    if parks and (step.retry is None or step.retry.on is None):
        return replace(retry, on=retry.on - {ErrorClass.TIMEOUT})
    return retry


def _for_each(
    step: AnyStep, document: Document, config: Mapping[str, Any]
) -> compiled.ForEach | None:
    block = step.for_each
    if block is None:
        return None
    return compiled.ForEach(
        items=compile_template(config["for_each"]["items"], names=None),
        name=block.as_,
        max_parallel=block.max_parallel or document.max_parallel,
        min_success=block.min_success,
    )


def _repeat(step: AnyStep) -> compiled.Repeat | None:
    block = step.repeat
    if block is None:
        return None
    return compiled.Repeat(
        until=compile_expression(block.until, names=None),
        max_rounds=block.max,
        delay=block.delay.total_seconds() if block.delay else 0.0,
        fail_when_exhausted=block.on_exhausted == "fail",
    )


def _signals(document: Document) -> dict[str, Mapping[str, Any] | None]:
    """Declared signal names with their schema; a gate's key is one too (FORMAT section 4).

    A schema that one wait declares holds for all waits for that name.
    """
    names: dict[str, Mapping[str, Any] | None] = {}
    for key, step in document.steps.items():
        if isinstance(step, WaitStep) and step.signal is not None:
            names[step.signal] = names.get(step.signal) or step.schema_
        elif isinstance(step, HumanGateStep):
            names.setdefault(key, None)
    return names
