"""The only place that knows Celery: thin tasks, and how wake-ups travel."""

from orchestrator.tasks.housekeeping import compare_providers, tick, verify
from orchestrator.tasks.steps import run_step

__all__ = ["compare_providers", "run_step", "tick", "verify"]
