"""What a tool receives as its first argument."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Protocol


class ToolContext(Protocol):
    """One call of a tool, seen from inside it. The engine fills it; tests may pass a stand-in."""

    @property
    def idempotency_key(self) -> str | None:
        """The declared effect key, to be sent along with the call; None without ``effect``."""
        ...

    @property
    def deadline(self) -> datetime:
        """When this attempt is over (UTC, the database's clock). See also ``time_left``."""
        ...

    @property
    def run_id(self) -> str:
        """The run this call belongs to."""
        ...

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        ...

    @property
    def tenant(self) -> str:
        """Whose run it is; an opaque name."""
        ...

    @property
    def actor(self) -> str:
        """Who started the run; an opaque name."""
        ...

    @property
    def correlation_id(self) -> str:
        """The caller's id for the whole affair; empty when none was given."""
        ...

    @property
    def traceparent(self) -> str:
        """The W3C trace context to pass on; empty when tracing is off."""
        ...

    def secret(self, name: str) -> str:
        """The value of a secret; ``Permanent`` when it is not set."""
        ...

    def heartbeat(self) -> None:
        """Go on only if the step is still ours; raises ``LeaseLost`` when its lease may be over.

        The lease is renewed by the process. Ask before each call of a long body: a process that
        stood still, or was cut from the database, must not call outside any more.
        """
        ...

    def call_tool(
        self,
        name: str,
        input: Any,  # noqa: A002 - the word of the contract
        effect_key: str | None = None,
        *,
        on_doubt: Literal["review", "resend"] = "review",
    ) -> Any:
        """Call another tool and give its output. With ``effect_key`` the call is an effect of its
        own: intent and receipt are committed around it, and an attempt that follows a dead one
        finds the receipt and does not call again.

        Raises what that tool means: ``Transient``, ``RateLimited``, ``Permanent``, or
        ``EffectInDoubt``. An agent may call only what its step lists in ``tools``.
        """
        ...

    def time_left(self) -> float:
        """Seconds until the deadline, never negative; measured on a monotonic clock."""
        ...
