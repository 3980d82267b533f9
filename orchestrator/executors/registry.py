"""Which class executes which step type: dotted paths in one setting, resolved when needed.

``ORCHESTRATOR["EXECUTORS"]`` adds to the types in the box and may replace them; a face brings its
step type (``human_gate``) this way without the engine importing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from django.conf import settings
from django.utils.module_loading import import_string

from orchestrator.core.errors import NotFound
from orchestrator.executors.base import Executor

IN_THE_BOX: Mapping[str, str] = {
    "agent": "orchestrator.executors.agent.AgentExecutor",
    "tool": "orchestrator.executors.tool.ToolExecutor",
    "router": "orchestrator.executors.router.RouterExecutor",
    "sub_workflow": "orchestrator.executors.sub_workflow.SubWorkflowExecutor",
    "undo_child": "orchestrator.executors.undo_child.UndoChildExecutor",
    "wait": "orchestrator.executors.wait.WaitExecutor",
}


def get_executor(step_type: str) -> Executor:
    """The executor of a step type; ``NotFound`` when the settings name none."""
    path = _paths().get(step_type)
    if path is None:
        raise NotFound(
            f"no executor for step type {step_type!r}: name it in ORCHESTRATOR['EXECUTORS']"
        )
    return _instance(path)


def step_types() -> tuple[str, ...]:
    """All step types that can be executed here, sorted."""
    return tuple(sorted(_paths()))


def executor_problems() -> list[str]:
    """One sentence per path that does not lead to an executor; for the system check."""
    problems = []
    for step_type, path in sorted(_paths().items()):
        try:
            executor = _instance(path)
        except (ImportError, TypeError) as error:
            problems.append(f"executor of {step_type!r}: {path} cannot be loaded: {error}")
            continue
        missing = [name for name in ("queue", "execute", "resume") if not hasattr(executor, name)]
        if missing:
            problems.append(f"executor of {step_type!r}: {path} lacks {', '.join(missing)}")
    return problems


def _paths() -> dict[str, str]:
    configured: Mapping[str, str] = getattr(settings, "ORCHESTRATOR", {}).get("EXECUTORS", {})
    return {**IN_THE_BOX, **configured}


@lru_cache(maxsize=64)
def _instance(path: str) -> Executor:
    executor: Executor = import_string(path)()
    return executor
