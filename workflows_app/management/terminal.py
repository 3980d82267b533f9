"""What the desk's commands share: whose tenant, who acts, and how problems are told."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from orchestrator.authoring import Workflow, WorkflowError
from orchestrator.core.errors import InvalidRequest, OrchestratorError
from orchestrator.core.problems import Problem
from orchestrator.models import Event
from workflows_app.discovery import find_workflows
from workflows_app.models import Tenant
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.publishing import JSON, YAML

DEFAULT_TENANT = "default"
TOLD = 160
"""How much of a line of history is shown, in characters."""


def add_tenant(parser: ArgumentParser) -> None:
    """The option ``--tenant``."""
    parser.add_argument("--tenant", help="whose (default: the only tenant there is)")


def tenant_of(options: dict[str, Any]) -> str:
    """The tenant that is meant; CommandError when that is not clear."""
    named: str | None = options["tenant"]
    slugs = list(Tenant.objects.values_list("slug", flat=True)[:20])
    if named is not None:
        if not Tenant.objects.filter(slug=named).exists():
            raise CommandError(
                f"There is no tenant {named!r}. Known: {', '.join(slugs) or 'none'}."
            )
        return named
    if len(slugs) > 1:
        raise CommandError(f"There are several tenants, name one: --tenant {'|'.join(slugs)}")
    return slugs[0] if slugs else Tenant.ensure(DEFAULT_TENANT).slug


def add_apps(parser: ArgumentParser) -> None:
    """The option ``--app``."""
    parser.add_argument(
        "--app", action="append", default=[], metavar="LABEL", help="only this app's workflows.py"
    )


def written_workflows(options: dict[str, Any]) -> list[Workflow] | None:
    """The workflows that installed apps hold in Python; None when files are named instead.

    CommandError when both are named, one of them is wrong, or there is none.
    """
    if options["files"]:
        if options["app"]:
            raise CommandError("Name files or --app, not both.")
        return None
    try:
        found = find_workflows(options["app"])
    except WorkflowError as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError(
            "No workflow was found: name a FILE, or put a Workflow into the workflows.py of an"
            " installed app."
        )
    return [each.flow for each in found]


def operator(tenant: str) -> Principal:
    """Whoever sits at this terminal, as history sees them."""
    return Principal(
        tenant=tenant, actor=f"user:{getpass.getuser()}", scopes=ALL_SCOPES, via="terminal"
    )


def read_document(path: str) -> tuple[bytes, str]:
    """A document's bytes and media type, by the file's name."""
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    return source, JSON if path.endswith(".json") else YAML


def problem_lines(path: str, problems: Iterable[Problem]) -> Sequence[str]:
    """One line for each problem, in the form that editors jump from: ``file:line: …``."""
    return [
        f"{path}{'' if p.line is None else f':{p.line}'}: {p.severity} {p.code}"
        f" {p.pointer or '(document)'}: {p.message}"
        for p in problems
    ]


def refused(error: OrchestratorError) -> CommandError:
    """The engine's refusal, with a line for each fault."""
    faults = error.problems if isinstance(error, InvalidRequest) else []
    lines = [f"  {fault['pointer'] or '/'}: {fault['detail']}" for fault in faults]
    return CommandError("\n".join([str(error), *lines]))


def event_line(event: Event) -> str:
    """One line of a run's history: when, what, which step, and in short what else is known."""
    words = _words(event.payload)
    if event.actor and "by" not in event.payload and event.type.startswith(("repair.", "run.")):
        words = f"by {event.actor}  {words}"
    told = words if len(words) <= TOLD else f"{words[: TOLD - 1]}…"
    return f"{event.at:%H:%M:%S.%f} {event.type:<22} {event.step:<12}  {told}".rstrip()


def _words(payload: Mapping[str, Any]) -> str:
    """The error in words, then what is plain; what is nested is for the API."""
    error = payload.get("error")
    words = [f"{error.get('class')}: {error.get('message')}"] if isinstance(error, dict) else []
    words += [
        f"{key} {value}"
        for key, value in payload.items()
        if isinstance(value, str | int | float) and value != "" and not key.endswith("_hash")
    ]
    return "  ".join(" ".join(word.split()) for word in words)
