"""What every page of engine rows shares: read only, and as fast on ten million rows as on ten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

COUNTED = 10_000

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:  # Django's admin classes are generic for the type checker only
    from django.contrib.admin import ModelAdmin as Pages

    Page = Paginator[Any]
else:
    Page = Paginator

    class Pages(admin.ModelAdmin):
        """Django's pages, which take a row type as a parameter for the type checker only."""

        def __class_getitem__(cls, _row: Any) -> type:
            return cls


class BoundedPaginator(Page):
    """Counts at most ``COUNTED`` rows: whoever wants older ones narrows the list."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, as far as anybody pages."""
        rows: QuerySet[Any] = self.object_list  # type: ignore[assignment]  # a list page's is one
        return rows.order_by()[:COUNTED].count()


class ReadOnlyPages(Pages[Row]):
    """Rows of the engine: nobody adds, changes or deletes one by hand."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    show_facets = admin.ShowFacets.NEVER  # they would count every row there is
    sortable_by = ()
    actions: Sequence[str] | None = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: rows come from running."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Never: an edit would bypass the guarded moves."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Never: what happened stays."""
        del request, obj
        return False


def state_badge(state: str, label: str = "") -> SafeString:
    """The state as a word in its colour; ``label`` is the business's word for it."""
    return format_html(
        '<span class="state state-{}" title="{}">{}</span>',
        state,
        state,
        label or state.replace("_", " "),
    )


def json_block(value: Any) -> SafeString:
    """JSON for reading; long texts scroll."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return format_html('<pre class="json">{}</pre>', text)
