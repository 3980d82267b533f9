"""What the desk's views share: the caller, one page of rows, and how a route is described."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from workflows_app.principal import Principal

Row = TypeVar("Row", bound=Model)
View = TypeVar("View", bound=Callable[..., Any])


def caller(request: Request) -> Principal:
    """The principal that ``HasScope`` has let in."""
    principal = request.user
    assert isinstance(principal, Principal)
    return principal


def page(
    view: APIView, request: Request, rows: QuerySet[Row], shape: Callable[[list[Row]], list[Any]]
) -> Response:
    """One page of ``rows`` as the API's pagination cuts it; ``shape`` makes the answer of it."""
    pagination: type[BasePagination] = api_settings.DEFAULT_PAGINATION_CLASS  # type: ignore[assignment]  # a class once it is read
    pages = pagination()
    found = pages.paginate_queryset(rows, request, view)
    return pages.get_paginated_response(shape(list(found or ())))


def describe(
    operation: str,
    summary: str,
    *,
    answers: Mapping[int, type[BaseModel]],
    body: type[BaseModel] | None = None,
    parameters: list[OpenApiParameter] | None = None,
    tag: str = "Runs",
) -> Callable[[View], View]:
    """The route in the API's description; problems are added there for every route."""
    return extend_schema(
        operation_id=operation,
        summary=summary,
        request=body,
        responses=dict(answers),
        parameters=parameters,
        tags=[tag],
    )


def query(name: str, description: str, **more: Any) -> OpenApiParameter:
    """A query parameter in the description."""
    kind = more.pop("type", str)
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=description, **more)


def header(name: str, description: str, *, required: bool = False) -> OpenApiParameter:
    """A header in the description."""
    return OpenApiParameter(
        name, str, OpenApiParameter.HEADER, description=description, required=required
    )


CURSOR = query("cursor", "`next` of the page before.")
LIMIT = query("limit", "Rows in a page, from 1 to 200.", type=int, default=50)
