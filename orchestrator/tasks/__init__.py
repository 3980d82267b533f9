"""The only place that knows Celery: thin tasks, and how wake-ups travel."""

from orchestrator.tasks.housekeeping import tick, verify
from orchestrator.tasks.steps import run_step

__all__ = ["run_step", "tick", "verify"]
