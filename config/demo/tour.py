"""One ticket's way through customer support, told at the terminal while it happens."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from approvals_app.models import Request
from config.demo.asking import answer
from config.demo.cast import Cast
from config.demo.report import report
from config.demo.screen import WIDTH, Screen
from config.demo.wording import Happened, Story
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState
from orchestrator.models import Event, Run, Step, StepDefinition
from workflows_app.gallery import catalogue
from workflows_app.triggering import start

WORKFLOW = "customer_support"
LOOK_EVERY_S = 0.1
PATIENCE_S = 60.0


@dataclass(slots=True)
class Tour:
    """Starts one run and follows it to its end."""

    cast: Cast
    screen: Screen
    links: Mapping[str, str]
    run_id: UUID = field(init=False)
    _seen: int = 0
    _story: Story = field(init=False)
    _began: datetime = field(init=False)

    def give(self) -> bool:
        """Whether the run completed; everything is said on the way."""
        ticket = self._ticket()
        self._introduce(ticket)
        started = start(self.cast.principal, WORKFLOW, {"input": ticket}, key=str(uuid4()))
        self.run_id = started.run_id
        run = Run.objects.get(pk=self.run_id)
        self._began = run.created_at
        titles = StepDefinition.objects.filter(blueprint=run.blueprint_id)
        title = run.blueprint.document.get("title") or WORKFLOW
        self._story = Story(run=title, titles=dict(titles.values_list("key", "title")))
        if not self._follow():
            self._explain_standstill()
            return False
        run.refresh_from_db()
        return report(self.screen, run, story=self._story, cast=self.cast, links=self.links)

    # -- the way ----------------------------------------------------------------------------------
    def _ticket(self) -> dict[str, Any]:
        # A mail goes out once per ticket, for ever; each demo brings a ticket of its own.
        number = f"T-{uuid4().int % 900_000 + 100_000}"
        return catalogue.sample_input(WORKFLOW) | {"ticket_id": number}

    def _introduce(self, ticket: Mapping[str, Any]) -> None:
        say = self.screen.say
        say(f"Ticket {ticket['ticket_id']} from {ticket['customer_name']}", colour="bold")
        say(f"  {ticket['subject']}")
        for line in textwrap.wrap(str(ticket["message"]), WIDTH - 2):
            say(f"  {line}", colour="dim")
        say()

    def _follow(self) -> bool:
        """Tell what happens until the run is over; False when nothing moves any more."""
        patient_until = time.monotonic() + PATIENCE_S
        asked: set[UUID] = set()
        while True:
            # The state is read first: its events are then certainly among those told.
            state = self._state()
            if self._tell_news():
                patient_until = time.monotonic() + PATIENCE_S
            if state in RUN_TERMINAL:
                return True
            request = self._open_request()
            if request is not None and request.pk not in asked:
                asked.add(request.pk)
                self._tell_news()
                answer(self.screen, request)
                patient_until = time.monotonic() + PATIENCE_S
            if time.monotonic() > patient_until:
                return False
            # The history is polled as any client of the API would: nobody pushes to a terminal.
            time.sleep(LOOK_EVERY_S)

    def _tell_news(self) -> bool:
        told = False
        for event in self._news():
            line = self._story.tell(event)
            if line is not None:
                self.screen.tell(line, width=self._story.width)
            told = True
        return told

    def _news(self) -> Iterator[Happened]:
        for event in Event.objects.filter(run_id=self.run_id, seq__gt=self._seen).order_by("seq"):
            self._seen = event.seq
            yield Happened(
                type=event.type,
                step=event.step,
                after=event.at - self._began,
                payload=event.payload,
            )

    def _state(self) -> RunState:
        return RunState(Run.objects.values_list("state", flat=True).get(pk=self.run_id))

    def _open_request(self) -> Request | None:
        """A request whose step is parked by now, so that its line is told before the question."""
        request = Request.objects.filter(run_id=self.run_id).open().first()
        if request is None:
            return None
        step = Step.objects.filter(run_id=self.run_id, key=request.key, scope=request.scope)
        return request if step.filter(state=StepState.WAITING).exists() else None

    def _explain_standstill(self) -> None:
        self.screen.say(
            f"Nothing has moved for {PATIENCE_S:g} s. The logs of the workers tell more:"
            f" {self.cast.password_file.parent / 'logs'}",
            colour="red",
        )
