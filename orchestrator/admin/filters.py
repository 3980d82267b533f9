"""How the list of runs is narrowed, each by something that is cheap to look up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from orchestrator import engine
from orchestrator.core.states import RUN_TERMINAL, RUN_WORKING, RunState
from orchestrator.models import Blueprint, Run


class StateFilter(SimpleListFilter):
    """A state, or one of the questions that people ask about states."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """The questions first."""
        del request, model_admin
        return [
            ("open", "Not ended"),
            ("moving", "Under way, not waiting"),
            ("person", "Waiting for a person"),
            ("review", "Waiting for a review"),
            ("failed_lately", "Failed, last 24 h"),
            *((str(state), state.replace("_", " ").capitalize()) for state in RunState),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """The runs that fit."""
        del request
        match self.value():
            case None:
                return queryset
            case "open":
                return queryset.filter(state__in=[s for s in RunState if s not in RUN_TERMINAL])
            case "moving":
                return queryset.filter(state__in=sorted(RUN_WORKING))
            case "person":
                return queryset.filter(state=RunState.WAITING, waiting_for="person")
            case "review":  # also while what a run did is being undone
                return queryset.filter(waiting_for="review").exclude(state__in=RUN_TERMINAL)
            case "failed_lately":
                return queryset.filter(engine.failed_lately())
            case state:
                return queryset.filter(state=state)


class _NameFilter(SimpleListFilter):
    """A column of few values; they are read from the blueprints, which are few too."""

    column = ""

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterator[Any]:
        """Every value there is."""
        del request, model_admin
        names = Blueprint.objects.order_by(self.column).values_list(self.column, flat=True)
        return ((name, name) for name in names.distinct()[:200])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """The runs that fit."""
        del request
        value = self.value()
        return queryset if value is None else queryset.filter(**{str(self.parameter_name): value})


class WorkflowFilter(_NameFilter):
    """By the workflow's name."""

    title = "workflow"
    parameter_name = "workflow"
    column = "name"


class TenantFilter(_NameFilter):
    """By the tenant."""

    title = "tenant"
    parameter_name = "tenant"
    column = "tenant"
