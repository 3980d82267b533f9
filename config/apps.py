"""The Django apps of the wiring itself: the stack's commands, the Celery app, the console."""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class WiringConfig(AppConfig):
    """Makes this project's Celery app the current one in every Django process."""

    name = "config"
    verbose_name = "Configuration"

    def ready(self) -> None:
        """Import the Celery app, so that tasks publish to our broker also from web and commands."""
        from config import celery  # noqa: F401


class ConsoleConfig(AdminConfig):
    """Django's admin, as this product's console."""

    default_site = "config.console.Console"
