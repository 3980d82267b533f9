"""The operators' console: Django's admin under the product's name, with the state of things."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse

from orchestrator import engine

FIRST = ("orchestrator", "approvals_app", "workflows_app", "django_celery_beat")
FIRST_PAGES = ("Run", "Workflow", "PeriodicTask")


class Console(AdminSite):
    """The admin site; its first page tells how many runs are under way, wait, and have failed, and
    how many alerts are open."""

    site_title = "Workflow orchestrator"
    site_header = "Durable workflow orchestrator"
    index_title = "Operators' console"
    enable_nav_sidebar = True

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """What operators look at first stands first."""
        apps: list[dict[str, Any]] = super().get_app_list(request, app_label)
        known = len(FIRST)
        place = {label: number for number, label in enumerate(FIRST)}
        for app in apps:
            app["models"].sort(key=lambda model: model["object_name"] not in FIRST_PAGES)
        return sorted(apps, key=lambda app: place.get(app["app_label"], known))

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """The first page, with the counts for those who may see runs."""
        may = request.user.has_perm("orchestrator.view_run")
        context = {
            "overview": engine.overview() if may else None,
            "may_see_alerts": request.user.has_perm("orchestrator.view_alert"),
            **(extra_context or {}),
        }
        return super().index(request, context)
