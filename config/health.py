"""Whether this process can do its work: the database and the broker answer."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError as BrokerError

from config.celery import app

TIME_LIMIT_S = 2

log = logging.getLogger(__name__)


@require_safe
def healthz(_request: HttpRequest) -> JsonResponse:
    """200 ``{"status": "ok", …}`` when both answer, else 503 with the part that does not."""
    parts = {"database": _answers(_ask_database), "broker": _answers(_ask_broker)}
    healthy = all(parts.values())
    body = {name: "ok" if fine else "no answer" for name, fine in parts.items()}
    status = "ok" if healthy else "unavailable"
    return JsonResponse({"status": status, **body}, status=200 if healthy else 503)


def _answers(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except (DatabaseError, BrokerError, OSError) as error:
        log.warning("health: %s: %s", ask.__name__, error)
        return False
    return True


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_broker() -> None:
    with app.connection_for_write(connect_timeout=TIME_LIMIT_S) as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, timeout=TIME_LIMIT_S)
