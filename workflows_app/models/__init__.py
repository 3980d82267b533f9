"""Names, versions, keys and tokens; no run state (that is the engine's)."""

from workflows_app.models.start_key import StartKey
from workflows_app.models.tenant import Membership, Role, Tenant
from workflows_app.models.token import ApiToken
from workflows_app.models.workflow import Workflow, WorkflowVersion

__all__ = [
    "ApiToken",
    "Membership",
    "Role",
    "StartKey",
    "Tenant",
    "Workflow",
    "WorkflowVersion",
]
