"""The face for people who write tools and workflows.

Here live the ``@tool`` decorator, what a tool receives and what it may raise, and ``Workflow``,
the builder of documents. Imports ``core``
only: no Django, no database, no network, so that an author's module stays easy to test.
"""

from orchestrator.authoring.context import ToolContext
from orchestrator.authoring.errors import (
    ArgumentMismatch,
    DuplicateTool,
    EffectInDoubt,
    LeaseLost,
    Permanent,
    RateLimited,
    ToolDefinitionError,
    ToolError,
    Transient,
    UnknownTool,
    WorkflowError,
)
from orchestrator.authoring.python_text import to_python
from orchestrator.authoring.references import Expr, StepRef, cel, need
from orchestrator.authoring.registry import ToolRegistry, registry, tool
from orchestrator.authoring.spec import ToolSpec
from orchestrator.authoring.workflow import Workflow, Written
from orchestrator.core.comparing import Listed

__all__ = [
    "ArgumentMismatch",
    "DuplicateTool",
    "EffectInDoubt",
    "Expr",
    "LeaseLost",
    "Listed",
    "Permanent",
    "RateLimited",
    "StepRef",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolRegistry",
    "ToolSpec",
    "Transient",
    "UnknownTool",
    "Workflow",
    "WorkflowError",
    "Written",
    "cel",
    "need",
    "registry",
    "to_python",
    "tool",
]
