"""The operators' console: Django's admin under the product's name, with the state of things."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse

from orchestrator import engine


class Console(AdminSite):
    """The admin site; its first page tells how many runs are under way, wait, and have failed."""

    site_title = "Workflow orchestrator"
    site_header = "Durable workflow orchestrator"
    index_title = "Operators' console"
    enable_nav_sidebar = True

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """The first page, with the counts for those who may see runs."""
        may = request.user.has_perm("orchestrator.view_run")
        context = {"overview": engine.overview() if may else None, **(extra_context or {})}
        return super().index(request, context)
