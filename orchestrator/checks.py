"""System checks of the engine: what would only fail when a run needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks

from orchestrator.adapters.llm.models import setting_problems
from orchestrator.executors.registry import executor_problems


def register() -> None:
    """Register the checks; called once, when the app is ready."""
    checks.register(check_executors, "orchestrator")
    checks.register(check_models, "orchestrator")


def check_executors(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Every step type's executor can be loaded (orchestrator.E001)."""
    del app_configs
    return [
        checks.Error(
            problem,
            hint="Correct ORCHESTRATOR['EXECUTORS'] in the settings.",
            id="orchestrator.E001",
        )
        for problem in executor_problems()
    ]


def check_models(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Providers can be read, and every alias leads to models that they know (orchestrator.E002)."""
    del app_configs
    return [
        checks.Error(
            problem,
            hint="Correct ORCHESTRATOR_PROVIDERS or ORCHESTRATOR_MODELS.",
            id="orchestrator.E002",
        )
        for problem in setting_problems()
    ]
