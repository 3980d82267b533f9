"""The contract of a step type: what it gets, what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from orchestrator.core.outcomes import Answer, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything one attempt may know. Built by the engine before the body runs.

    ``config`` is the step's block of the document as plain JSON (typed keys of FORMAT section 1);
    ``input`` the evaluated input; ``scope`` the CEL names visible to the step (``input``,
    ``steps``, ``run``, ``trigger``, in loops also ``item``, ``index``, ``previous``);
    ``render`` evaluates a template (``${{ }}``) or, with ``bare=True``, a CEL text against
    ``scope`` and raises ``ConditionError``. ``deadline`` is the end of this attempt (UTC).
    """

    run_id: str
    tenant: str
    workflow: str
    version: int
    actor: str
    correlation_id: str
    traceparent: str
    step_key: str
    item_scope: str
    attempt: int
    fence: int
    config: Mapping[str, Any]
    input: Any
    scope: Mapping[str, Any]
    render: Callable[..., Any]
    idempotency_key: str | None
    deadline: datetime
    started_at: datetime
    heartbeat: Callable[[], None]


class Executor(Protocol):
    """One step type. Stateless: one instance serves the whole process."""

    queue: str
    """The queue of this step type (``tool``, ``agent``, ``engine``, ``approval``, …)."""

    def execute(self, context: StepContext) -> Outcome:
        """Do the work, outside any transaction. An exception counts as a transient failure."""
        ...

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """What the answer to a wait means. Pure: same config and answer, same outcome.

        ``upstream`` is the step's evaluated input (a gate passes it on in its output).
        """
        ...
