"""The Django app of the wiring itself: the stack's commands and the Celery app."""

from django.apps import AppConfig


class WiringConfig(AppConfig):
    """Makes this project's Celery app the current one in every Django process."""

    name = "config"
    verbose_name = "Configuration"

    def ready(self) -> None:
        """Import the Celery app, so that tasks publish to our broker also from web and commands."""
        from config import celery  # noqa: F401
