"""``manage.py start NAME``: start a run from the shell, and watch it if wanted."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.core.management.base import BaseCommand, CommandError

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.source import SourceError, parse_json_body
from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.models import Run
from workflows_app import queries, triggering
from workflows_app.management.terminal import (
    add_tenant,
    event_line,
    operator,
    refused,
    tenant_of,
)

LOOK_EVERY_S = 0.2


class Command(BaseCommand):
    """Prints the run's id; with ``--watch`` its history until it ends, and how it ended."""

    help = "Start a run of a workflow."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``NAME [--input JSON|@file] [--key K] [--version N] [--watch] [--tenant T]``."""
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--input", default="{}", help="JSON, or @ and the name of a file")
        parser.add_argument("--key", help="idempotency key (default: a new one)")
        parser.add_argument("--use-version", type=int, metavar="N", help="instead of the default")
        parser.add_argument("--correlation-id", help="default: the run's id")
        parser.add_argument("--watch", action="store_true", help="follow the run to its end")
        add_tenant(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """With ``--watch`` the exit status is 0 only if the run completed."""
        body = {"input": _read_input(options["input"])}
        for option, field in (("use_version", "version"), ("correlation_id", "correlation_id")):
            if options[option] is not None:
                body[field] = options[option]
        try:
            key = triggering.read_key(options["key"] or str(uuid4()))
            principal = operator(tenant_of(options))
            started = triggering.start(principal, options["name"], body, key=key, trigger="command")
        except OrchestratorError as error:
            raise refused(error) from error
        again = " (the key had started it before)" if started.replayed else ""
        self.stdout.write(f"{started.run_id}{again}")
        if options["watch"] and self._watch(started.run_id) is not RunState.COMPLETED:
            sys.exit(1)

    def _watch(self, run_id: UUID) -> RunState:
        """Print each new line of the history; the state in which the run ended."""
        seen = 0
        while True:
            state = RunState(Run.objects.values_list("state", flat=True).get(pk=run_id))
            for event in queries.history(run_id).filter(seq__gt=seen).order_by("seq"):
                self.stdout.write(event_line(event))
                seen = event.seq
            if state in RUN_TERMINAL:
                return state
            time.sleep(LOOK_EVERY_S)


def _read_input(text: str) -> Any:
    try:
        data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        return parse_json_body(data)
    except OSError as error:
        raise CommandError(f"{text[1:]} cannot be read: {error.strerror}.") from error
    except SourceError as error:
        raise CommandError(f"--input is not JSON: {error}") from error
