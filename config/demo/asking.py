"""The demo's approval: asked at the terminal, given by the demo when nobody is there."""

from __future__ import annotations

import getpass
import time

from approvals_app.decisions import DecisionBody, decide
from approvals_app.models import Request
from approvals_app.policy import Choice, Person
from config.demo.screen import WIDTH, Screen, wrapped
from orchestrator.core.errors import StateConflict

SECONDS_TO_ANSWER = 60.0
SECONDS_ALONE = 3.0
LOOK_EVERY_S = 0.1


def answer(screen: Screen, request: Request) -> None:
    """Show the request, have it decided, by a person or, when there is none, by the demo."""
    _show(screen, request)
    choice, person, notes = _answer(screen, request)
    if choice is None:
        return
    body = DecisionBody(decision=choice, notes=notes)
    try:
        decide(request.pk, body, tenant=request.tenant, person=person)
    except StateConflict as conflict:
        screen.say(f"  Somebody else was faster: {conflict}", colour="yellow")


def _show(screen: Screen, request: Request) -> None:
    say = screen.say
    asked = ", ".join(request.assignments.values_list("who", flat=True))
    say()
    say(f"  {request.title or request.key}  (for {asked})", colour="bold")
    for line in wrapped(request.message, WIDTH - 4):
        say(f"  | {line}".rstrip())
    say()


def _answer(screen: Screen, request: Request) -> tuple[Choice | None, Person, str]:
    """What is decided, by whom; no choice when it was decided elsewhere meanwhile."""
    if not screen.someone_there:
        screen.say(
            f"  Nobody is at the terminal: the demo approves by itself in {SECONDS_ALONE:g} s."
        )
        _wait(request, SECONDS_ALONE)
        return _alone(request, "Approved by the demo: nobody was at the terminal.")
    typed = _ask(screen, request)
    if typed is None:
        return _alone(request, "Approved by the demo: nobody answered.")
    person = Person(actor=f"user:{getpass.getuser()}", roles=frozenset({"support_lead"}))
    choice = Choice.APPROVE if typed.startswith("y") else Choice.REJECT
    return choice, person, "Decided at the terminal."


def _ask(screen: Screen, request: Request) -> str | None:
    """``y…`` or ``n…``; None when nobody answers in time or it is decided elsewhere."""
    until = time.monotonic() + SECONDS_TO_ANSWER
    question = f"  Send this reply? y/n (the demo says yes after {SECONDS_TO_ANSWER:g} s) "
    while time.monotonic() < until:
        left = until - time.monotonic()
        typed = screen.ask(question, seconds=left, settled=lambda: _settled(request))
        if typed is None:
            return None
        if typed[:1] in ("y", "n"):
            return typed
        question = "  Please type y or n: "
    return None


def _alone(request: Request, notes: str) -> tuple[Choice | None, Person, str]:
    person = Person(actor="system:demo", roles=frozenset({"support_lead"}))
    return None if _settled(request) else Choice.APPROVE, person, notes


def _wait(request: Request, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _settled(request):
        time.sleep(LOOK_EVERY_S)


def _settled(request: Request) -> bool:
    return not Request.objects.filter(pk=request.pk).open().exists()
