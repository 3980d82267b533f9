"""Tables, constraints and the guarded moves: the only place that writes rows' state."""

from orchestrator.models.alert import Alert
from orchestrator.models.blueprint import Blueprint, EdgeDefinition, StepDefinition
from orchestrator.models.breaker import Breaker, Gate, Hold, Quota
from orchestrator.models.bulk import BulkItem, BulkRetry
from orchestrator.models.duty import Duty
from orchestrator.models.effect import Effect
from orchestrator.models.history import Event
from orchestrator.models.outbox import Outbox
from orchestrator.models.repair import Repair
from orchestrator.models.replay_check import ReplayCheck, ReplayDay
from orchestrator.models.run import Run
from orchestrator.models.signal import Signal
from orchestrator.models.step import Attempt, DeadLetter, Step
from orchestrator.models.timer import Timer
from orchestrator.models.turn import ModelAlias, Turn

__all__ = [
    "Alert",
    "Attempt",
    "Blueprint",
    "Breaker",
    "BulkItem",
    "BulkRetry",
    "DeadLetter",
    "Duty",
    "EdgeDefinition",
    "Effect",
    "Event",
    "Gate",
    "Hold",
    "ModelAlias",
    "Outbox",
    "Quota",
    "Repair",
    "ReplayCheck",
    "ReplayDay",
    "Run",
    "Signal",
    "Step",
    "StepDefinition",
    "Timer",
    "Turn",
]
