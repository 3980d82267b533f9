"""Bulk retries in the console: how far each is, what became of each letter, and going on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from orchestrator import engine
from orchestrator.admin.operators import actor_of, may_operate, roles_of
from orchestrator.admin.readonly import ReadOnlyPages, state_badge
from orchestrator.models import BulkItem, BulkRetry

PORTION = 20
ITEMS_SHOWN = 500
_SESSION_KEY = "bulk_retry_begun"
_SHOWN = {"refused": "refused", "retried": "retried", "left": ""}
_BADGES = {"refused": "failed", "retried": "completed", "": "pending"}


def go_on_at_once(request: HttpRequest, bulk: BulkRetry) -> None:
    """The page of it, when this browser opens it next, begins by itself; once."""
    request.session[_SESSION_KEY] = str(bulk.pk)


@admin.register(BulkRetry)
class BulkRetryAdmin(ReadOnlyPages[BulkRetry]):
    """What operators retried by the many; one that was left can be taken up again."""

    list_display = ("created_at", "reason", "actor", "total", "standing")
    ordering = ("-created_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BulkRetry]:
        """With whether something is left."""
        left = BulkItem.objects.filter(bulk=OuterRef("pk"), status="")
        return super().get_queryset(request).annotate(is_left=Exists(left))

    def get_urls(self) -> list[URLPattern]:
        """Going on, beside the usual pages."""
        work = self.admin_site.admin_view(self.work_view)
        name = "orchestrator_bulkretry_work"
        return [path("<uuid:bulk_id>/work/", work, name=name), *super().get_urls()]

    @admin.display(description="stands")
    def standing(self, bulk: BulkRetry) -> SafeString:
        """Whether it was worked off."""
        left = bool(getattr(bulk, "is_left", False))
        return (
            state_badge("waiting", "left unfinished") if left else state_badge("completed", "done")
        )

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """How far it is, and what became of each."""
        del form_url
        if not self.has_view_permission(request):
            raise PermissionDenied
        bulk = self.get_object(request, object_id)
        if bulk is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        begun = request.session.get(_SESSION_KEY) == str(bulk.pk)
        if begun:
            del request.session[_SESSION_KEY]
        progress = engine.bulk_progress(bulk)
        show = request.GET.get("show", "")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Retry of dead letters",
            "bulk": bulk,
            "progress": progress,
            "handled": progress.total - progress.left,
            "begun": begun,
            "may_operate": may_operate(request),
            "portion": PORTION,
            "show": show if show in _SHOWN else "",
            "shown": list(_SHOWN),
            "items": [_item_row(item) for item in _items(bulk, show)],
            "most": ITEMS_SHOWN,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/orchestrator/bulkretry/progress.html", context)

    def work_view(self, request: HttpRequest, bulk_id: UUID) -> HttpResponse:
        """POST handles the next portion, and leads back; to repeat it does no harm."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not may_operate(request):
            raise PermissionDenied
        bulk = BulkRetry.objects.filter(pk=bulk_id).first()
        if bulk is None:
            raise Http404
        engine.work_bulk(bulk, actor=actor_of(request), role=roles_of(request), at_most=PORTION)
        return HttpResponseRedirect(reverse("admin:orchestrator_bulkretry_change", args=[bulk.pk]))


def _items(bulk: BulkRetry, show: str) -> list[BulkItem]:
    """Refused ones first: they are what is left to think about; then the newest."""
    found = BulkItem.objects.filter(bulk=bulk)
    if show in _SHOWN:
        found = found.filter(status=_SHOWN[show]).order_by("pk")
        return list(found.select_related("letter__step")[:ITEMS_SHOWN])
    ordered: list[BulkItem] = []
    for status in _SHOWN.values():
        room = ITEMS_SHOWN - len(ordered)
        some = found.filter(status=status).order_by("pk").select_related("letter__step")[:room]
        ordered += some
    return ordered


def _item_row(item: BulkItem) -> dict[str, Any]:
    badge = state_badge(_BADGES[item.status], item.status or "left")
    return {"item": item, "letter": item.letter, "badge": badge}
