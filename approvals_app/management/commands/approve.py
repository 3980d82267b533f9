"""``manage.py approve ID``: decide from the shell, as an operator who stands in for anybody."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from approvals_app.decisions import Decided, decide, parse_body
from approvals_app.models import Request
from approvals_app.policy import Person, RequestState
from orchestrator.core.errors import InvalidRequest, OrchestratorError


class Command(BaseCommand):
    """Approve (or reject) one approval, named by its own id or by that of its run."""

    help = "Approve an open approval, or reject it with --reject."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``ID [--reject] [--notes TEXT] [--data JSON] [--as NAME]``."""
        parser.add_argument("id", type=UUID, help="id of the approval, or of the run that waits")
        parser.add_argument("--reject", action="store_true", help="reject instead of approving")
        parser.add_argument("--notes", default="", help="why; handed to later steps")
        parser.add_argument("--data", help="JSON for the form of the approval")
        parser.add_argument(
            "--as", dest="actor", default=None, help="name in the record (default: user:LOGIN)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Decide and say what became of it."""
        request = _find(options["id"])
        actor = options["actor"] or f"user:{getpass.getuser()}"
        try:
            result = _decide(request, actor, options)
        except InvalidRequest as error:
            faults = "".join(f"\n  {each['pointer']}: {each['detail']}" for each in error.problems)
            raise CommandError(f"{error}{faults}") from error
        except OrchestratorError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(_told(result))


def _decide(request: Request, actor: str, options: dict[str, Any]) -> Decided:
    body = {
        "decision": "reject" if options["reject"] else "approve",
        "notes": options["notes"],
        "data": _data(options["data"]),
    }
    person = Person(actor=actor, stands_in=True)
    return decide(request.pk, parse_body(body), tenant=request.tenant, person=person)


def _data(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CommandError(f"--data is not JSON: {error}") from error


def _find(identifier: UUID) -> Request:
    """The approval of that id; else the one that the run of that id waits for, or its last one."""
    request = Request.objects.filter(pk=identifier).first()
    if request is not None:
        return request
    of_run = Request.objects.filter(run_id=identifier)
    waiting = list(of_run.open().order_by("id"))
    if len(waiting) > 1:
        listed = "".join(f"\n  {each.pk}  {each.key}{each.scope}" for each in waiting)
        raise CommandError(f"Run {identifier} waits for several approvals; name one:{listed}")
    found = waiting[0] if waiting else of_run.order_by("-id").first()
    if found is None:
        raise CommandError(f"There is no approval {identifier}, nor one of a run of that id.")
    return found


def _told(result: Decided) -> str:
    request = result.request
    if result.concluded:
        return f"{request}: {request.outcome}."
    if request.state == RequestState.OPEN:
        return f"{request}: noted; more approvers are needed."
    return f"{request}: {request.state}."
