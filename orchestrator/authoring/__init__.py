"""The face for people who write tools.

Here live the ``@tool`` decorator, what a tool receives and what it may raise. Imports ``core``
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
)
from orchestrator.authoring.registry import ToolRegistry, registry, tool
from orchestrator.authoring.spec import ToolSpec
from orchestrator.core.comparing import Listed

__all__ = [
    "ArgumentMismatch",
    "DuplicateTool",
    "EffectInDoubt",
    "LeaseLost",
    "Listed",
    "Permanent",
    "RateLimited",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolRegistry",
    "ToolSpec",
    "Transient",
    "UnknownTool",
    "registry",
    "tool",
]
