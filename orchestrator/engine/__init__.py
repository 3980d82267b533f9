"""The engine's use cases; this module is THE FACE, the only part that other apps import.

A public function is one transaction (``run_step``: several, with the bodies between them). The
engine knows no account, browser or queue: tenant and actor are opaque strings, wake-ups go
through a port.
"""

from orchestrator.core.undo_steps import UNDO
from orchestrator.crash import Unit, crash_point
from orchestrator.engine.aliases import AliasPicture, model_aliases, set_model_alias
from orchestrator.engine.births import Newborn
from orchestrator.engine.blueprints import compiled, draft, pinned_digest, register_blueprint
from orchestrator.engine.bulk import (
    MAX_BULK,
    BulkProgress,
    bulk_progress,
    start_bulk,
    work_bulk,
)
from orchestrator.engine.claiming import Order
from orchestrator.engine.compat import Compatibility, check_compatibility
from orchestrator.engine.control import cancel_run, pause_run, resume_run
from orchestrator.engine.explaining import length
from orchestrator.engine.family import cancel_children, tell_parent
from orchestrator.engine.forgetting import forget_old_effects
from orchestrator.engine.holds import (
    QUOTA_SCOPES,
    drop_quota,
    hold,
    hold_at_boot,
    release_hold,
    set_quota,
)
from orchestrator.engine.inbox import SignalResult, deliver_decision, send_signal
from orchestrator.engine.leases import keeper
from orchestrator.engine.ledger import MAX_SAGA_LINES, SagaLine, saga_ledger
from orchestrator.engine.letters import Retried, open_letters, retry_letter, settle_letter
from orchestrator.engine.parts import InstalledParts
from orchestrator.engine.pictures import Overview, RunPicture, StepPicture
from orchestrator.engine.ports import Dispatcher, LaneControl, set_dispatcher
from orchestrator.engine.pulse import beat_once
from orchestrator.engine.reading import (
    database_now,
    failed_lately,
    item_pictures,
    overview,
    picture,
    step_items,
)
from orchestrator.engine.repair import ACTIONS, repair_run
from orchestrator.engine.repair_order import RepairReport
from orchestrator.engine.service_pictures import ServicePicture, services
from orchestrator.engine.simulation import MAX_ANSWERS, Wanted, simulate
from orchestrator.engine.simulation_report import (
    PaperApproval,
    PaperEffect,
    Range,
    Simulation,
)
from orchestrator.engine.start import prepare_start, start_prepared, start_run
from orchestrator.engine.steps import run_step
from orchestrator.engine.undoing import tell_undone, undo_child

__all__ = [
    "ACTIONS",
    "MAX_ANSWERS",
    "MAX_BULK",
    "MAX_SAGA_LINES",
    "QUOTA_SCOPES",
    "UNDO",
    "AliasPicture",
    "BulkProgress",
    "Compatibility",
    "Dispatcher",
    "InstalledParts",
    "LaneControl",
    "Newborn",
    "Order",
    "Overview",
    "PaperApproval",
    "PaperEffect",
    "Range",
    "RepairReport",
    "Retried",
    "RunPicture",
    "SagaLine",
    "ServicePicture",
    "SignalResult",
    "Simulation",
    "StepPicture",
    "Unit",
    "Wanted",
    "beat_once",
    "bulk_progress",
    "cancel_children",
    "cancel_run",
    "check_compatibility",
    "compiled",
    "crash_point",
    "database_now",
    "deliver_decision",
    "draft",
    "drop_quota",
    "failed_lately",
    "forget_old_effects",
    "hold",
    "hold_at_boot",
    "item_pictures",
    "keeper",
    "length",
    "model_aliases",
    "open_letters",
    "overview",
    "pause_run",
    "picture",
    "pinned_digest",
    "prepare_start",
    "register_blueprint",
    "release_hold",
    "repair_run",
    "resume_run",
    "retry_letter",
    "run_step",
    "saga_ledger",
    "send_signal",
    "services",
    "set_dispatcher",
    "set_model_alias",
    "set_quota",
    "settle_letter",
    "simulate",
    "start_bulk",
    "start_prepared",
    "start_run",
    "step_items",
    "tell_parent",
    "tell_undone",
    "undo_child",
    "work_bulk",
]
