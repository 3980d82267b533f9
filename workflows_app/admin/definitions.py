"""Workflows and their versions in the console: read, and retire."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from workflows_app import publishing
from workflows_app.admin.confirming import FrozenPages, confirmed
from workflows_app.models import Workflow, WorkflowVersion

PERMISSION = "workflows_app.change_workflowversion"


@admin.register(Workflow)
class WorkflowAdmin(FrozenPages):
    """A name with its versions."""

    list_display = ("name", "title", "default_version", "runs", "tenant")
    list_filter = ("tenant",)
    search_fields = ("name", "title")
    fields = ("name", "title", "description", "tenant", "created_at", "all_versions", "runs")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workflow]:
        """With the versions, without their texts."""
        found: QuerySet[Workflow] = super().get_queryset(request)
        return found.prefetch_related("versions")

    @admin.display(description="default version")
    def default_version(self, workflow: Workflow) -> int | None:
        """What a start without a version runs."""
        defaults = [each.number for each in workflow.versions.all() if each.is_default]
        return defaults[0] if defaults else None

    @admin.display(description="versions")
    def all_versions(self, workflow: Workflow) -> SafeString:
        """Each as a link, newest first."""
        return format_html_join(
            mark_safe("<br>"),
            '<a href="{}">{}</a> {}{}',
            (
                (
                    reverse("admin:workflows_app_workflowversion_change", args=[each.pk]),
                    each.number,
                    each.state,
                    ", default" if each.is_default else "",
                )
                for each in sorted(workflow.versions.all(), key=lambda v: -v.number)
            ),
        )

    @admin.display(description="runs")
    def runs(self, workflow: Workflow) -> SafeString:
        """A link to its runs."""
        address = reverse("admin:orchestrator_run_changelist")
        return format_html(
            '<a href="{}?workflow={}&tenant={}">Show runs</a>',
            address,
            workflow.name,
            workflow.tenant_id,
        )


@admin.register(WorkflowVersion)
class VersionAdmin(FrozenPages):
    """A published document under its number."""

    list_display = ("workflow", "number", "state", "is_default", "published_at", "published_by")
    list_display_links = ("workflow", "number")
    list_filter = ("state", "is_default", "workflow__tenant")
    list_select_related = ("workflow",)
    search_fields = ("workflow__name",)
    ordering = ("-id",)
    actions = ("retire",)
    fields = (
        *("workflow", "number", "state", "is_default", "published_at", "published_by"),
        *("frozen", "text"),
    )
    readonly_fields = fields

    def has_retire_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retire versions. Nobody may edit them."""
        return bool(request.user.has_perm(PERMISSION))

    @admin.action(description="Retire …", permissions=["retire"])
    def retire(
        self, request: HttpRequest, queryset: QuerySet[WorkflowVersion]
    ) -> TemplateResponse | None:
        """No new runs of these; those under way go on."""
        return confirmed(
            self,
            request,
            queryset.select_related("workflow"),
            action="retire",
            question="Retire these versions? New runs will not use them; runs under way go on.",
            do=_retire,
        )

    @admin.display(description="document")
    def text(self, version: WorkflowVersion) -> SafeString:
        """The text as it was published."""
        return format_html('<pre class="json">{}</pre>', version.source)

    @admin.display(description="steps and edges")
    def frozen(self, version: WorkflowVersion) -> SafeString:
        """The frozen blueprint, as a link."""
        address = reverse("admin:orchestrator_blueprint_change", args=[version.blueprint_id])
        return format_html('<a href="{}">{}</a>', address, version.blueprint)


def _retire(version: WorkflowVersion) -> str:
    publishing.retire(version)
    return "retired"
