"""Who calls: tenant, actor, roles and what the credential allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a credential may be good for; every route names the one it needs."""

    RUN_START = "run:start"
    RUN_READ = "run:read"
    RUN_SIGNAL = "run:signal"
    RUN_OPERATE = "run:operate"
    RUN_REPAIR = "run:repair"
    SERVICE_READ = "service:read"
    SERVICE_HOLD = "service:hold"
    DEF_PUBLISH = "def:publish"
    DEF_READ = "def:read"
    GATE_READ = "gate:read"
    GATE_DECIDE = "gate:decide"


ALL_SCOPES = frozenset(str(scope) for scope in Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The authenticated caller, as ``request.user`` of the API.

    ``actor`` is written into histories and matched against a gate's assignees (``user:ann``).
    ``via`` tells how the caller came in: ``token:<id>`` or ``session``.
    """

    tenant: str
    actor: str
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    via: str = ""

    @property
    def is_authenticated(self) -> bool:
        """Always: without a credential there is no principal."""
        return True

    def may(self, scope: str) -> bool:
        """Whether the credential allows ``scope``."""
        return scope in self.scopes
