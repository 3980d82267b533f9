"""Actions on chosen rows that ask first: the list's action shows a page, its POST does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

if TYPE_CHECKING:  # Django's admin classes are generic for the type checker only
    Pages = admin.ModelAdmin[Any]
else:
    Pages = admin.ModelAdmin


class FrozenPages(Pages):
    """Rows that are shown and acted upon, never edited and never deleted."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never here: see the page's help for how such a row is made."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never: what was published or issued stays what it was."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never: runs and histories refer to it."""
        del request, obj
        return False


def confirmed(
    pages: Pages,
    request: HttpRequest,
    chosen: QuerySet[Any],
    *,
    action: str,
    question: str,
    do: Callable[[Any], str],
) -> TemplateResponse | None:
    """The page that asks, or, once it was sent, None after ``do`` was done to each row.

    ``do`` returns what the log and the message say of the row.
    """
    if request.POST.get("confirmed") != "yes":
        context = {
            **pages.admin_site.each_context(request),
            "title": question,
            "opts": pages.opts,
            "action": action,
            "chosen": list(chosen[:200]),
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/workflows_app/confirm.html", context)
    for row in chosen:
        said = do(row)
        pages.log_change(request, row, said)
        messages.success(request, f"{row}: {said}")
    return None
