"""The whole document as one block, and the edges that it draws between its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from orchestrator.core.durations import PositiveDuration
from orchestrator.core.policies import (
    Block,
    Budget,
    Defaults,
    EdgeOn,
    JsonSchema,
    Key,
    OnError,
    Priority,
    Sla,
    Trigger,
)
from orchestrator.core.step_kinds import AnyStep, RouterStep, Step

SCHEMA_NAME = "orchestrator/v1"
MAX_STEPS = 2000


class Document(Block):
    """A workflow: what goes in, which steps run in what order, what comes out."""

    schema_: Annotated[Literal["orchestrator/v1"], Field(alias="schema")]
    name: Annotated[Key, Field(description="The workflow's name.")]
    title: str | None = None
    description: str | None = None
    input: Annotated[
        JsonSchema | None,
        Field(description="JSON Schema of the run's input; not given: any object."),
    ] = None
    output: Annotated[
        Any,
        Field(description="JSON with ${{ CEL }}; not given: the outputs of all last steps."),
    ] = None
    budget: Budget | None = None
    timeout: Annotated[
        PositiveDuration | None, Field(description="Of the whole run, by the clock on the wall.")
    ] = None
    sla: Sla | None = None
    max_parallel: Annotated[int, Field(ge=1, le=10_000, description="Steps in flight.")] = 10
    priority: Annotated[
        Priority, Field(description="Its class, which rules may give queues of their own.")
    ] = "normal"
    labels: Annotated[
        dict[str, str] | None, Field(description="The business's words for states.")
    ] = None
    triggers: Annotated[tuple[Trigger, ...], Field(strict=False)] = ()
    on_error: OnError = "fail"
    defaults: Defaults = Defaults()
    steps: Annotated[dict[Key, Step], Field(min_length=1, max_length=MAX_STEPS)]

    @property
    def has_output(self) -> bool:
        """Whether ``output`` is written; else the outputs of the steps without successor."""
        return "output" in self.model_fields_set


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One dependency of ``target`` on ``source``.

    ``routes`` is not None when ``source`` is a router that names the target: the edge is then
    taken only with one of these route ids. ``declared`` tells whether the target names the source
    in its own ``needs``. ``position`` is the place in ``needs`` (routers not named there come
    last, in the document's order); merges go by it.
    """

    source: str
    target: str
    on: EdgeOn = "completed"
    when: str | None = None
    routes: tuple[str, ...] | None = None
    declared: bool = True
    position: int = 0


def document_edges(document: Document) -> tuple[Edge, ...]:
    """Every edge between steps: written needs, and those that routers imply.

    A target that also names its router in ``needs`` has one edge with both conditions. Edges of
    names that do not exist are included; ``core.validation`` reports them. Fallback is no edge.
    """
    routed = _routed_targets(document)
    return tuple(
        edge
        for key, step in document.steps.items()
        for edge in _edges_into(key, step, routed.get(key, {}))
    )


def _routed_targets(document: Document) -> dict[str, dict[str, tuple[str, ...]]]:
    """``{target: {router: route ids}}``."""
    targets: dict[str, dict[str, tuple[str, ...]]] = {}
    for key, step in document.steps.items():
        if not isinstance(step, RouterStep):
            continue
        for route in step.routes:
            for target in dict.fromkeys(route.to):
                routers = targets.setdefault(target, {})
                routers[key] = (*routers.get(key, ()), route.id)
    return targets


def _edges_into(key: str, step: AnyStep, routers: dict[str, tuple[str, ...]]) -> Iterator[Edge]:
    for position, need in enumerate(step.edges):
        yield Edge(
            source=need.step,
            target=key,
            on=need.on,
            when=need.when,
            routes=routers.get(need.step),
            position=position,
        )
    declared = {need.step for need in step.edges}
    implied = [router for router in routers if router not in declared]
    for position, router in enumerate(implied, start=len(step.edges)):
        yield Edge(
            source=router,
            target=key,
            routes=routers[router],
            declared=False,
            position=position,
        )
