"""The desk in the console: workflows and versions to look at, tokens to revoke, people to place."""

from workflows_app.admin.definitions import VersionAdmin, WorkflowAdmin
from workflows_app.admin.people import MembershipAdmin, RoleAdmin, TenantAdmin
from workflows_app.admin.tokens import TokenAdmin

__all__ = [
    "MembershipAdmin",
    "RoleAdmin",
    "TenantAdmin",
    "TokenAdmin",
    "VersionAdmin",
    "WorkflowAdmin",
]
