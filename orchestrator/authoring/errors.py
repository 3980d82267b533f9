"""What a tool may raise on purpose, and what is wrong with a tool itself."""

from __future__ import annotations

from orchestrator.core.errors import OrchestratorError


class ToolError(OrchestratorError):
    """Root of the errors that a tool raises on purpose; the message is shown to people."""

    code = "tool_error"


class Transient(ToolError):
    """It may work later. ``retry_after`` in seconds is the other side's wish, if it told one.

    ``not_applied=True`` promises that the effect certainly did not happen; without it the effect
    of a tool that is not idempotent is in doubt (FORMAT section 4, Effects).
    """

    code = "transient"

    def __init__(
        self, message: str, retry_after: float | None = None, *, not_applied: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.not_applied = not_applied


class RateLimited(ToolError):
    """The other side asked for fewer calls; nothing was applied. ``retry_after`` in seconds."""

    code = "rate_limit"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Permanent(ToolError):
    """It will never work with this input, and nothing was applied. Never retried."""

    code = "permanent"


class LeaseLost(ToolError):
    """The step may be somebody else's by now. Raised by ``ctx.heartbeat()``; let it pass: what the
    body answers is refused, or counts as a failure that may be tried again."""

    code = "lease_lost"


class EffectInDoubt(ToolError):
    """Nobody can tell what became of a call made by ``ctx.call_tool``. Let it pass: the step waits
    for a person, whatever the body goes on to do."""

    code = "effect_in_doubt"


class ArgumentMismatch(OrchestratorError):
    """The step's input does not fit the tool's parameters.

    ``problems`` are ``{pointer, detail}`` entries; pointers lead into the step's input.
    """

    code = "schema_error"

    def __init__(self, message: str, *, problems: list[dict[str, str]]) -> None:
        super().__init__(message)
        self.problems = problems


class ToolDefinitionError(OrchestratorError):
    """A decorated function cannot be a tool; found when its module is imported."""

    code = "tool_definition"


class DuplicateTool(ToolDefinitionError):
    """Two different functions claim one name; the message names both."""

    code = "duplicate_tool"


class UnknownTool(OrchestratorError):
    """No tool of that name is registered in this process."""

    code = "unknown_tool"


class WorkflowError(OrchestratorError):
    """A workflow written in Python cannot be a document; found where it is written.

    ``file`` and ``line`` say where, as far as that is known.
    """

    code = "workflow_definition"

    def __init__(self, message: str, *, file: str = "", line: int | None = None) -> None:
        super().__init__(f"{file}:{line}: {message}" if file else message)
        self.words = message
        self.file = file
        self.line = line
