"""The contract of a step type: what it gets, what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from orchestrator.core.expressions import compile_template
from orchestrator.core.outcomes import Answer, Outcome
from orchestrator.executors.journal import Journal, MemoryJournal
from orchestrator.executors.model_desk import ModelDesk, OpenDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call of another tool from inside a body. ``effect_key`` None: the call has no effect;
    ``on_doubt`` is ``review`` or ``resend``, as in a document."""

    tool: str
    input: Any
    effect_key: str | None = None
    on_doubt: str = "review"


def _no_calls(request: ToolRequest) -> Outcome:
    raise TypeError(f"nothing here can call {request.tool}: this attempt has no engine behind it")


def _strangers(templates: Sequence[Any], *, with_input: bool) -> tuple[str, ...]:
    """Without a run around it, whatever is taken from outside the document is a stranger's."""
    names = (compile_template(each, names=None).names for each in templates)
    found = frozenset[str](("input",) if with_input else ()).union(*names)
    return tuple(sorted(found - {"run"}))


def _no_brief() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Everything one attempt may know. Built by the engine before the body runs.

    ``config`` is the step's block of the document as plain JSON (typed keys of FORMAT section 1);
    ``input`` the evaluated input; ``scope`` the CEL names visible to the step (``input``,
    ``steps``, ``run``, ``trigger``, in loops also ``item``, ``index``, ``previous``);
    ``render`` evaluates a template (``${{ }}``) or, with ``bare=True``, a CEL text against
    ``scope`` and raises ``ConditionError``. ``deadline`` is the end of this attempt (UTC).
    ``call_tool`` calls another tool, with intent and receipt of its own, and answers
    ``Succeeded``, ``Failed``, or ``Waiting`` when nobody can tell what became of it.
    ``journal`` keeps the turns of a conversation with a model, ``desk`` says which models may be
    asked. ``strangers(templates, with_input=…)`` names what the templates, and if so asked the
    step's input, take from places that nobody vouched for; ``brief()`` tells a
    routing model where the run stands, bounded in tokens.
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
    call_tool: Callable[[ToolRequest], Outcome] = _no_calls
    journal: Journal = field(default_factory=MemoryJournal)
    desk: ModelDesk = field(default_factory=OpenDesk)
    strangers: Callable[..., tuple[str, ...]] = _strangers
    brief: Callable[[], str] = _no_brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What ``execute`` would answer, worked out without touching anything.

    ``shown`` is small JSON for whoever reads a simulation: of a gate who would be asked, and what.
    """

    outcome: Outcome
    shown: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Rehearses(Protocol):
    """An executor whose ``execute`` acts (stores, calls), and that can say what it would answer."""

    def rehearse(self, context: StepContext) -> Rehearsed:
        """The answer of ``execute``, with nothing stored and nobody called."""
        ...


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
