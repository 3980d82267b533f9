"""The Django app of the gate."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Requests for a person's decision and the decisions."""

    name = "approvals_app"
    verbose_name = "Approvals"
