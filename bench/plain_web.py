"""Plain Celery behind HTTP: one bare view of Django under the same server as the product's.

No account, no idempotency key, no database: it reads JSON and sends a chain. Run as
``python -m bench.plain_web PORT``; ``POST /QUEUE`` starts a chain of one on a layout's queue.
"""

from __future__ import annotations

import sys
from uuid import uuid4

import orjson
import uvicorn
from celery import chain
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from bench.plain import LATE

_LAYOUTS = {layout.queue: layout for layout in LATE}


def start(request: HttpRequest, queue: str) -> HttpResponse:
    """A chain of one; its key as ``instance_id``, as the product answers."""
    orjson.loads(request.body)
    layout = _LAYOUTS[queue]
    key = str(uuid4())
    chain(layout.task.si(key).set(queue=layout.queue)).apply_async()
    body = orjson.dumps({"instance_id": key})
    return HttpResponse(body, status=201, content_type="application/json")


urlpatterns: list[URLPattern] = [path("<str:queue>", start)]


def main() -> None:
    """Serve until a signal."""
    settings.configure(
        SECRET_KEY="none is needed",
        ROOT_URLCONF="bench.plain_web",
        ALLOWED_HOSTS=["127.0.0.1"],
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
    )
    uvicorn.run(
        get_asgi_application(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
