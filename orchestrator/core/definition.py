"""The workflow document as one typed model, its canonical bytes and its digest.

FORMAT section 1 is the contract. ``Document`` says what a single block may look like; whatever
concerns several blocks at once (edges, names, the catalogue) is checked in ``core.validation``.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from orchestrator.core.document import MAX_STEPS, SCHEMA_NAME, Document, Edge, document_edges
from orchestrator.core.policies import (
    Budget,
    Compensate,
    Defaults,
    Effect,
    Escalation,
    ForEach,
    Join,
    Merge,
    Need,
    Repeat,
    Retry,
    RetryPolicy,
    Route,
    Sla,
    Trigger,
)
from orchestrator.core.problems import LineOf, Problem, no_line
from orchestrator.core.shape import shape_problems
from orchestrator.core.step_kinds import (
    AgentStep,
    AnyStep,
    HumanGateStep,
    RouterStep,
    StepBase,
    SubWorkflowStep,
    ToolStep,
    WaitStep,
    WorkflowRef,
)

__all__ = [
    "MAX_STEPS",
    "SCHEMA_NAME",
    "AgentStep",
    "AnyStep",
    "Budget",
    "Compensate",
    "Defaults",
    "Document",
    "Edge",
    "Effect",
    "Escalation",
    "ForEach",
    "HumanGateStep",
    "Join",
    "Merge",
    "Need",
    "Repeat",
    "Retry",
    "RetryPolicy",
    "Route",
    "RouterStep",
    "Sla",
    "StepBase",
    "SubWorkflowStep",
    "ToolStep",
    "Trigger",
    "WaitStep",
    "WorkflowRef",
    "canonical_json",
    "digest",
    "document_edges",
    "effective_retry",
    "effective_timeout",
    "parse_document",
    "run_timeout",
]

DEFAULT_STEP_TIMEOUT = timedelta(minutes=5)
DEFAULT_GATE_TIMEOUT = timedelta(hours=24)
DEFAULT_WORKING_TIME = timedelta(hours=1)


def parse_document(
    value: Any, *, line_of: LineOf = no_line
) -> tuple[Document | None, list[Problem]]:
    """The typed document, or None with everything that is wrong with its shape."""
    try:
        return Document.model_validate(value), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    return None, shape_problems(details, value, line_of)


def effective_retry(step: StepBase | Compensate, defaults: Defaults) -> Retry:
    """The retry policy in force: each key from the step, else ``defaults.retry``, else FORMAT."""
    values: dict[str, Any] = {}
    for policy in (defaults.retry, step.retry):
        if policy is not None:
            values.update(policy.model_dump(exclude_none=True))
    if "on" in values:
        values["on"] = frozenset(values["on"])
    return Retry(**values)


def effective_timeout(step: StepBase, defaults: Defaults) -> timedelta | None:
    """How long an attempt (gate, wait: the waiting) may take; None is no limit of its own.

    ``defaults.timeout`` does not apply to gates, waits and sub-workflows (FORMAT section 4).
    """
    if step.timeout is not None:
        return step.timeout
    if isinstance(step, HumanGateStep):
        return DEFAULT_GATE_TIMEOUT
    if isinstance(step, WaitStep | SubWorkflowStep):
        return None
    return defaults.timeout or DEFAULT_STEP_TIMEOUT


def run_timeout(document: Document) -> tuple[timedelta, Literal["wall", "working"]]:
    """The run's own time limit and its clock: ``timeout`` by the wall, else 1 h of working time."""
    if document.timeout is not None:
        return document.timeout, "wall"
    return DEFAULT_WORKING_TIME, "working"


def canonical_json(value: Any) -> bytes:
    """The document's canonical bytes: keys sorted, no spaces, integers exact, UTF-8.

    ``value`` is the plain JSON that was read, so that the JSON and the YAML face of a document
    give the same bytes.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(data: bytes) -> str:
    """SHA-256 as lower-case hex."""
    return hashlib.sha256(data).hexdigest()
