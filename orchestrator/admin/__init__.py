"""The operators' console of the engine, in Django's admin: everything to see, nothing to edit.

State changes only through the engine's face, by a POST that was confirmed with a reason.
"""

from orchestrator.admin.alerts import AlertAdmin
from orchestrator.admin.blueprints import BlueprintAdmin
from orchestrator.admin.breakers import HoldAdmin, ServiceAdmin
from orchestrator.admin.bulk_retries import BulkRetryAdmin
from orchestrator.admin.dead_letters import DeadLetterAdmin
from orchestrator.admin.model_aliases import ModelAliasAdmin
from orchestrator.admin.repairs import EffectAdmin, RepairAdmin
from orchestrator.admin.replays import ReplayCheckAdmin, ReplayDayAdmin
from orchestrator.admin.runs import RunAdmin

__all__ = [
    "AlertAdmin",
    "BlueprintAdmin",
    "BulkRetryAdmin",
    "DeadLetterAdmin",
    "EffectAdmin",
    "HoldAdmin",
    "ModelAliasAdmin",
    "RepairAdmin",
    "ReplayCheckAdmin",
    "ReplayDayAdmin",
    "RunAdmin",
    "ServiceAdmin",
]
