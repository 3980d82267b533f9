"""What a look at the installation found: one matter, as an alert will tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.models.alert import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One matter. ``key`` names it within its kind, the same at every look."""

    key: str
    title: str
    detail: dict[str, Any] = field(default_factory=dict)
    severity: Severity = "warning"
    tenant: str = ""
    run_id: UUID | None = None
