"""``manage.py show ID``: one run, its steps, and why it stands where it stands."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

import orjson
from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from orchestrator.core.durations import format_money
from orchestrator.engine import RunPicture, StepPicture
from orchestrator.models import Run
from workflows_app import queries
from workflows_app.api import shapes
from workflows_app.management.terminal import event_line


class Command(BaseCommand):
    """For people; with ``--json`` exactly what the API answers."""

    help = "Show a run."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``ID [--history] [--json]``."""
        parser.add_argument("id", metavar="ID", type=UUID)
        parser.add_argument("--history", action="store_true", help="with every transition")
        parser.add_argument("--json", action="store_true", help="as the API answers it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the run."""
        run = Run.objects.filter(pk=options["id"]).first()
        if run is None:
            raise CommandError(f"There is no run {options['id']}.")
        picture = engine.picture(run)
        if options["json"]:
            body = orjson.dumps(shapes.run_answer(picture), option=orjson.OPT_INDENT_2)
            self.stdout.write(body.decode())
            return
        self.stdout.write("\n".join(_lines(picture)))
        if options["history"]:
            self._history(run)

    def _history(self, run: Run) -> None:
        self.stdout.write("")
        for event in queries.history(run.id).order_by("seq").iterator():
            self.stdout.write(f"{event.seq:>5} {event_line(event)}")


def _lines(picture: RunPicture) -> list[str]:
    run = picture.run
    width = max([len(step.name) for step in picture.steps], default=0)
    return [
        f"{picture.title}: {run.workflow} version {run.workflow_version}, run {run.id}",
        f"{run.state}{f' for {run.waiting_for}' if run.waiting_for else ''}. {picture.why}",
        f"{picture.elapsed.total_seconds():.1f} s, {format_money(run.cost_microusd)} USD",
        "",
        *(f"  {step.name:<{width}}  {_state(step)}" for step in picture.steps),
        *_saga(run),
    ]


def _saga(run: Run) -> list[str]:
    """The ledger in short, where something was undone or could not be."""
    if not run.compensation and run.state != "compensating":
        return []
    lines = engine.saga_ledger(run)
    width = max([len(line.step + line.scope) for line in lines], default=0)
    return ["", f"Undone: {run.compensation or 'under way'}"] + [
        f"  {line.step + line.scope:<{width}}  {line.state}"
        f"{f'  {line.effect_key}' if line.effect_key else ''}"
        f"{f'  dead letter {line.task}' if line.task else ''}"
        f"{f'  {line.why}' if line.why else ''}"
        for line in lines
    ]


def _state(step: StepPicture) -> str:
    took = ""
    if step.started_at and step.finished_at:
        took = f"  {(step.finished_at - step.started_at).total_seconds():.2f} s"
    again = f"  attempt {step.attempt}" if step.attempt > 1 else ""
    error = f"  {step.error.get('message', '')}" if step.error and not step.sentence else ""
    why = f"  {step.sentence}" if step.sentence else ""
    return f"{step.state:<11}{took}{again}{error}{why}"
