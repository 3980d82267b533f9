"""What the desk refuses, beside the engine's own errors; config says which HTTP status each is."""

from __future__ import annotations

from orchestrator.core.errors import InvalidRequest, OrchestratorError, StateConflict
from orchestrator.core.problems import Problem


class BadKey(OrchestratorError):
    """The Idempotency-Key is missing or cannot be one."""

    code = "idempotency_key_invalid"


class KeyInFlight(StateConflict):
    """Another transaction is just starting a run under the same key; ``retry_after`` seconds."""

    code = "idempotency_in_flight"
    retry_after = 1

    def __init__(self, key: str) -> None:
        super().__init__(
            f"A start with the key {key!r} is under way: repeat the call in a moment.",
            state="in_flight",
        )


class DocumentRefused(InvalidRequest):
    """The document has errors; ``findings`` are all of them, warnings included."""

    def __init__(self, findings: list[Problem]) -> None:
        self.findings = findings
        errors = [finding for finding in findings if finding.severity == "error"]
        super().__init__(
            f"The document has {len(errors)} error{'s' if len(errors) != 1 else ''}.",
            code="invalid_definition",
            problems=[{"pointer": e.pointer, "code": e.code, "detail": e.message} for e in errors],
        )
