"""What the commands about holds share: what is meant, who acts, and how a refusal reads."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from orchestrator.core.durations import parse_duration
from orchestrator.core.errors import InvalidRequest, OrchestratorError
from orchestrator.core.gates import GLOBAL, SCOPES


def add_target(parser: ArgumentParser) -> None:
    """``SCOPE [NAME]``."""
    parser.add_argument("scope", choices=SCOPES, nargs="?", help="what kind of thing")
    parser.add_argument("name", nargs="?", default="", help="its name; none for global")


def target(options: dict[str, Any]) -> tuple[str, str]:
    """Scope and name; CommandError when one is missing."""
    scope = options["scope"]
    if scope is None:
        raise CommandError(f"Say what: one of {', '.join(SCOPES)}.")
    if scope != GLOBAL and not options["name"]:
        raise CommandError(f"Name the {scope}: {scope} NAME.")
    return scope, options["name"]


def actor() -> str:
    """Whoever sits at this terminal."""
    return f"user:{getpass.getuser()}"


def duration(text: str) -> timedelta:
    """``30m``, ``4h``, ``PT4H``; CommandError for anything else."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError(f"--for {text}: {error}") from error


def refused(error: OrchestratorError) -> CommandError:
    """The engine's refusal, in its own words."""
    faults = error.problems if isinstance(error, InvalidRequest) else []
    words = "; ".join(f"{fault['pointer'][1:]}: {fault['detail']}" for fault in faults)
    return CommandError(f"{words or error}.")
