"""The Django app of the desk."""

from django.apps import AppConfig


class WorkflowsConfig(AppConfig):
    """Names, versions, triggers and tokens of workflows."""

    name = "workflows_app"
    verbose_name = "Workflows"
