"""What each step kind asks of its own keys, beyond their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.expressions import template_texts
from orchestrator.core.policies import Route
from orchestrator.core.problems import suggestion
from orchestrator.core.step_kinds import (
    AgentStep,
    AnyStep,
    HumanGateStep,
    RouterStep,
    SubWorkflowStep,
    ToolStep,
    WaitStep,
)
from orchestrator.core.validation.review import Review

_TAKEN_NAMES = frozenset({"input", "steps", "run", "trigger", "index", "previous", "output"})
_CEL_WORDS = frozenset({"in", "true", "false", "null"})
_MOST_ITEMS = 10_000
Path = tuple[str | int, ...]


def check_kinds(review: Review) -> None:
    """Each step by its kind, then its loops and its queue; at last what signals declare."""
    for key, step in review.steps.items():
        match step:
            case RouterStep():
                _check_router(review, key, step)
            case HumanGateStep():
                _check_gate(review, key, step)
            case WaitStep():
                _check_wait(review, key, step)
            case SubWorkflowStep():
                _check_child(review, key, step)
            case AgentStep():
                _check_agent(review, key, step)
            case ToolStep():
                check_tool_name(review, ("steps", key, "tool"), step.tool)
        _check_for_each(review, key, step)
        _check_queue(review, key, step)
    _check_signals(review)


def check_tool_name(review: Review, path: Path, name: str) -> None:
    """The tool must be registered."""
    if review.catalogue.tool(name) is None:
        mend = suggestion(name, review.catalogue.tools())
        review.error(
            "unknown_tool", path, f'no tool is registered as "{name}": {mend or "register it."}'
        )


def _check_model(review: Review, path: Path, name: str) -> None:
    if not review.catalogue.has_model(name):
        mend = suggestion(name, review.catalogue.models())
        review.error("unknown_model", path, f'there is no model "{name}": {mend or "set it up."}')


def _check_agent(review: Review, key: str, step: AgentStep) -> None:
    _check_model(review, ("steps", key, "model"), step.model)
    for index, name in enumerate(step.tools):
        check_tool_name(review, ("steps", key, "tools", index), name)


def _check_router(review: Review, key: str, step: RouterStep) -> None:
    ids: set[str] = set()
    for index, route in enumerate(step.routes):
        path = ("steps", key, "routes", index)
        if route.id in ids:
            review.error("duplicate_route", (*path, "id"), f'"{route.id}" twice: rename one.')
        ids.add(route.id)
        _check_route(review, path, step, route)
    _check_default(review, key, step, ids)
    if step.strategy == "score" and step.value is None:
        review.error("missing_key", ("steps", key, "value"), "score needs a value: add it (CEL).")
    if step.strategy == "llm":
        for name in ("model", "question"):
            if getattr(step, name) is None:
                review.error("missing_key", ("steps", key, name), f"llm needs a {name}: add it.")
    if step.model is not None:
        _check_model(review, ("steps", key, "model"), step.model)


def _check_default(review: Review, key: str, step: RouterStep, ids: set[str]) -> None:
    path = ("steps", key, "default")
    if step.default is None:
        review.error(
            "router_without_default", path, "the router has no default: name one of its routes."
        )
    elif step.default not in ids:
        review.error(
            "unknown_route", path, f'"{step.default}" is no route: {suggestion(step.default, ids)}'
        )


_ROUTE_KEYS = {"rules": "when", "score": "at_least", "llm": "description"}


def _check_route(review: Review, path: Path, step: RouterStep, route: Route) -> None:
    for index, target in enumerate(route.to):
        if target not in review.steps:
            mend = suggestion(target, review.steps)
            review.error(
                "dangling_route", (*path, "to", index), f'there is no step "{target}": {mend}'
            )
    wanted = _ROUTE_KEYS[step.strategy]
    if getattr(route, wanted) is None and route.id != step.default:
        message = f'route "{route.id}" says nothing for strategy {step.strategy}: add {wanted}.'
        report = review.warn if wanted == "description" else review.error
        report("route_without_rule", (*path, wanted), message)
    read = (wanted, "when") if step.strategy == "llm" else (wanted,)  # when: if no model answers
    for name in _ROUTE_KEYS.values():
        if name not in read and getattr(route, name) is not None:
            message = f"strategy {step.strategy} does not read {name}: remove it."
            review.warn("unused_key", (*path, name), message)


def _check_gate(review: Review, key: str, step: HumanGateStep) -> None:
    if not step.assignees:
        review.error(
            "gate_without_assignee",
            ("steps", key, "assignees"),
            'nobody may decide: add assignees, e.g. ["role:finance"].',
        )
    for index, name in enumerate(step.assignees):
        _check_assignee(review, ("steps", key, "assignees", index), name)
    for index, escalation in enumerate(step.escalate):
        for place, name in enumerate(escalation.to):
            _check_assignee(review, ("steps", key, "escalate", index, "to", place), name)
        if step.timeout is not None and escalation.after >= step.timeout:
            review.warn(
                "late_escalation",
                ("steps", key, "escalate", index, "after"),
                "the gate expires before this: use a shorter time than its timeout.",
            )
    if step.on_timeout == "escalate" and not step.escalate:
        review.error(
            "escalate_to_nobody",
            ("steps", key, "escalate"),
            "on_timeout: escalate needs somebody: add escalate: [{after: 4h, to: [role:lead]}].",
        )


def _check_assignee(review: Review, path: Path, name: str) -> None:
    if list(template_texts(name)):
        return
    kind, _, rest = name.partition(":")
    if kind not in ("role", "group", "user") or not rest:
        review.error(
            "bad_assignee", path, f'"{name}" names nobody: write role:…, group:… or user:….'
        )
    elif kind == "role" and not review.catalogue.has_role(rest):
        mend = suggestion(rest, review.catalogue.roles())
        review.error("unknown_role", path, f'there is no role "{rest}": {mend or "create it."}')


def _check_wait(review: Review, key: str, step: WaitStep) -> None:
    given = [
        name
        for name, value in (("for", step.for_), ("until", step.until), ("signal", step.signal))
        if value is not None
    ]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        review.error(
            "bad_wait", ("steps", key), f"a wait has one of for, until, signal, not {found}."
        )
    if step.signal is None and step.schema_ is not None:
        review.warn(
            "unused_key", ("steps", key, "schema"), "only a signal has a schema: remove it."
        )


def _check_signals(review: Review) -> None:
    """A payload is checked by its signal's name when it comes, before a waiter is chosen."""
    first: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for key, step in review.steps.items():
        if not isinstance(step, WaitStep) or step.signal is None or step.schema_ is None:
            continue
        other, schema = first.setdefault(step.signal, (key, step.schema_))
        if schema != step.schema_:
            review.error(
                "signal_schema_differs",
                ("steps", key, "schema"),
                f'signal "{step.signal}" has another schema at {other}: give both the same, or '
                "name the signals differently.",
            )


def _check_child(review: Review, key: str, step: SubWorkflowStep) -> None:
    child = step.child
    path = ("steps", key, "workflow")
    if child.name == review.document.name and child.version is None:
        return
    if not review.catalogue.workflow(child.name, None):
        mend = suggestion(child.name, review.catalogue.workflows())
        review.error(
            "unknown_workflow",
            path,
            f'no workflow "{child.name}" is published: {mend or "publish it first."}',
        )
    elif not review.catalogue.workflow(child.name, child.version):
        review.error(
            "unknown_version",
            path,
            f'"{child.name}" has no version {child.version}: use a published one or none.',
        )


def _check_for_each(review: Review, key: str, step: AnyStep) -> None:
    block = step.for_each
    if block is None:
        return
    path = ("steps", key, "for_each")
    if block.as_ in _TAKEN_NAMES | _CEL_WORDS:
        review.error(
            "bad_item_name", (*path, "as"), f'"{block.as_}" means something else: rename it.'
        )
    if isinstance(block.items, list):
        _check_items(review, path, len(block.items), block.min_success)
    elif not isinstance(block.items, str) or not _is_expression(block.items):
        review.error(
            "not_a_list", (*path, "items"), 'items is no list: write a list or one "${{ … }}".'
        )


def _is_expression(text: str) -> bool:
    return text.startswith("${{") and text.endswith("}}")


def _check_items(review: Review, path: Path, count: int, least: int | None) -> None:
    if count > _MOST_ITEMS:
        review.error("too_large", (*path, "items"), f"{count} items: at most {_MOST_ITEMS}.")
    if least is not None and least > count:
        review.error(
            "min_success_too_large",
            (*path, "min_success"),
            f"{least} of {count} items can never succeed: use at most {count}.",
        )


def _check_queue(review: Review, key: str, step: AnyStep) -> None:
    if step.queue is not None and step.queue not in review.catalogue.queues:
        mend = suggestion(step.queue, review.catalogue.queues)
        review.error(
            "unknown_queue", ("steps", key, "queue"), f'no worker reads "{step.queue}": {mend}'
        )
