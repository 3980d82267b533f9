"""What every part needs, imported once before the parts are forked."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module

from django.conf import settings

from config.celery import app
from config.servers import django_database

# The heaviest things that a worker, the web process, beat or Flower imports when it starts.
MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "django_celery_beat.schedulers",
    "django.core.management.commands.migrate",
    "flower.command",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)


def aim(urls: Mapping[str, str]) -> None:
    """Point this process's settings at the servers, which are known only now."""
    settings.DATABASES["default"].update(django_database(urls["DATABASE_URL"]))
    broker = urls["BROKER_URL"]
    settings.CELERY_BROKER_URL = settings.CELERY_RESULT_BACKEND = broker
    app.conf.update(broker_url=broker, result_backend=broker)


def preload() -> None:
    """Import it all, and tell the collector to leave it: copied pages stay shared."""
    for name in (*MODULES, settings.ROOT_URLCONF):
        import_module(name)
    app.finalize()
    gc.collect()
    gc.freeze()
