"""What every API route shares: strict JSON in, exact JSON out, pages by opaque cursor.

Named in the DRF settings, so that the faces use it without importing it or each other.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

import orjson
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.pagination import BasePagination
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.core.errors import InvalidRequest
from orchestrator.core.source import parse_json_body

if TYPE_CHECKING:  # DRF reads its settings, and so this module, while it defines the class
    from rest_framework.views import APIView

DEFAULT_LIMIT = 50
MAX_LIMIT = 200


class StrictJSONParser(BaseParser):
    """JSON to the letter: no duplicate keys, NaN or NUL, 64 levels, integers exact to 64 bits."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002 - DRF's signature
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """The plain value; ``SourceError`` with every problem of the text."""
        return parse_json_body(stream.read())


class ExactJSONRenderer(BaseRenderer):
    """JSON with integers exact beyond 2^53, instants in UTC with a Z, and no NaN."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,  # noqa: ARG002 - DRF's signature
        renderer_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> bytes:
        """The bytes of a response; nothing at all for None (204)."""
        if data is None:
            return b""
        try:
            return orjson.dumps(data, option=orjson.OPT_UTC_Z)
        except TypeError:
            return orjson.dumps(_with_doubles(data), option=orjson.OPT_UTC_Z, default=str)


def _with_doubles(data: Any) -> Any:
    """``data`` with integers beyond 64 bits as doubles.

    They came in as such (integers of that size are refused), but jsonb spells 1e22 in full.
    """
    match data:
        case int() if not -(2**63) <= data < 2**64:
            return float(data)
        case Mapping():
            return {key: _with_doubles(value) for key, value in data.items()}
        case list() | tuple():
            return [_with_doubles(value) for value in data]
        case _:
            return data


class AlwaysJSON(BaseContentNegotiation):
    """The API speaks JSON, whatever ``Accept`` says (RFC 9110, 12.5.1 leaves that open)."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """The parser of the request's media type; 415 for any other."""
        given = (request.content_type or "").partition(";")[0].strip().lower()
        known = {parser.media_type: parser for parser in parsers}
        if given not in known:
            raise UnsupportedMediaType(given, f"Send the body as {' or '.join(known)}.")
        return known[given]

    def select_renderer(
        self,
        request: Request,  # noqa: ARG002 - DRF's signature
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,  # noqa: ARG002
    ) -> tuple[BaseRenderer, str]:
        """The first one, always."""
        first = next(iter(renderers))
        return first, first.media_type


class KeysetPages(BasePagination):
    """``{results, next}`` by one unique column; ``next`` is an opaque cursor, or null at the end.

    The view names the column as ``page_by`` (``-id``: newest first). No counting, no offsets: a
    page costs the same wherever it stands. With ``page_after`` the cursor is the column's plain
    value in a parameter of that name (the history's ``after``).
    """

    def __init__(self) -> None:
        self._next: Any = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        """One page of rows (dictionaries or objects), in the view's order."""
        order: str = getattr(view, "page_by", "-id")
        plain: str | None = getattr(view, "page_after", None)
        field = order.removeprefix("-")
        limit = limit_of(request)
        name = plain or "cursor"
        if given := request.query_params.get(name):
            way = "lt" if order.startswith("-") else "gt"
            start = _read_cursor(name, given, queryset, field)
            queryset = queryset.filter(**{f"{field}__{way}": start})
        rows = list(queryset.order_by(order)[: limit + 1])
        if len(rows) > limit:
            rows = rows[:limit]
            last = rows[-1][field] if isinstance(rows[-1], dict) else getattr(rows[-1], field)
            self._next = last if plain else _cursor(last)
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        """The page as the API answers it."""
        return Response({"results": data, "next": self._next})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The page in the API's description."""
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": ["string", "null"], "description": "Pass it as `cursor`."},
            },
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:  # noqa: ARG002
        """The query parameters of a page in the API's description."""
        kinds = {"cursor": {"type": "string"}, "limit": {"type": "integer", "maximum": MAX_LIMIT}}
        return [
            {"name": name, "in": "query", "required": False, "schema": kind}
            for name, kind in kinds.items()
        ]


def limit_of(request: Request, *, default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> int:
    """The ``limit`` of a list, from 1 to ``most``."""
    text = request.query_params.get("limit")
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise bad_query("limit", f"write a number from 1 to {most}.")
    return int(text)


def bad_query(name: str, detail: str) -> InvalidRequest:
    """The refusal of one query parameter."""
    return InvalidRequest(
        f"The query parameter {name} cannot be used: {detail}",
        code="invalid_query",
        problems=[{"pointer": f"/{name}", "code": "invalid_query", "detail": detail}],
    )


def _cursor(value: Any) -> str:
    return urlsafe_b64encode(str(value).encode()).decode().rstrip("=")


def _read_cursor(name: str, given: str, queryset: QuerySet[Any], field: str) -> Any:
    """The column's value in a cursor; refused unless it is one that we gave."""
    column = queryset.model._meta.get_field(field)  # noqa: SLF001 - Django's documented API
    try:
        text = given
        if name == "cursor":
            text = urlsafe_b64decode(given.encode("ascii") + b"=" * (-len(given) % 4)).decode()
        value = column.to_python(text)
        column.run_validators(value)
    except (ValueError, TypeError, ValidationError) as error:
        raise bad_query(name, "pass the value of `next` as it was given.") from error
    return value
