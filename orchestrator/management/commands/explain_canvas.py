"""``manage.py explain_canvas NAME|FILE``: how a workflow travels through the queues."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from orchestrator.conf import engine_settings
from orchestrator.core.canvas import Canvas, Chain, Chord, Stretch, messages
from orchestrator.core.canvas_walk import Wave, walk
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.problems import Problem
from orchestrator.core.source import SourceError, load_yaml
from orchestrator.core.validation import check_document
from orchestrator.engine.blueprints import default_queues
from orchestrator.models import Blueprint

_WAITS = {
    "human_gate": "parks until a person decides",
    "wait": "parks until its time or signal comes",
    "sub_workflow": "parks until the child run has ended",
    "router": "decides which way it goes on",
}


class Command(BaseCommand):
    """The tree of chains, chords and single messages, wave by wave."""

    help = "Show the Celery messages that a workflow travels in: chains, chords, queues."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to explain, and whether as with ``ORCHESTRATOR_FUSE=0``."""
        parser.add_argument("name", help="a published workflow (name or name@3), or a file")
        parser.add_argument("--tenant", help="whose workflow (default: whoever has one)")
        parser.add_argument(
            "--no-fuse", action="store_true", help="as with ORCHESTRATOR_FUSE=0: a task a step"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Find it, walk it, print it."""
        workflow = _found(options["name"], options["tenant"])
        fuse = engine_settings().fuse and not options["no_fuse"]
        waves = list(walk(workflow, fuse=fuse))
        for line in _page(workflow, waves, fuse=fuse):
            self.stdout.write(line)


# -- finding it ------------------------------------------------------------------------------------


def _found(name: str, tenant: str | None) -> CompiledWorkflow:
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json") or path.is_file():
        return _from_file(path)
    wanted, _, version = name.partition("@")
    known = Blueprint.objects.filter(name=wanted).order_by("-id")
    if tenant:
        known = known.filter(tenant=tenant)
    if version:
        known = known.filter(version=int(version) if version.isdigit() else 0)
    newest = known.values_list("pk", flat=True).first()
    if newest is None:
        raise CommandError(f"no workflow {name} is published, and there is no such file")
    return engine.compiled(newest)


def _from_file(path: Path) -> CompiledWorkflow:
    """A document that need not be published yet."""
    try:
        loaded = load_yaml(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except SourceError as error:
        raise CommandError(_faults(path, error.problems)) from error
    document, problems = check_document(loaded.value, _AnyTenant(), line_of=loaded.line)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if document is None or wrong:
        raise CommandError(_faults(path, wrong))
    return compile_workflow(document, loaded.value, queues=default_queues(), pins={})


def _faults(path: Path, problems: Iterable[Problem]) -> str:
    lines = (f"\n  line {p.line}, {p.pointer or '/'}: {p.message}" for p in problems)
    return f"{path} cannot be explained:{''.join(lines)}"


class _AnyTenant(engine.InstalledParts):
    """What is installed, for a tenant who has every role and workflow that a document names."""

    def has_role(self, role: str) -> bool:
        """Always."""
        return True

    def roles(self) -> tuple[str, ...]:
        """None to suggest."""
        return ()

    def workflow(self, name: str, version: int | None) -> bool:
        """Always."""
        return True

    def workflows(self) -> tuple[str, ...]:
        """None to suggest."""
        return ()


# -- printing it -----------------------------------------------------------------------------------


def _page(workflow: CompiledWorkflow, waves: list[Wave], *, fuse: bool) -> Iterator[str]:
    count = sum(len(list(messages(canvas))) for wave in waves for canvas in wave.canvases)
    way = "neighbours on a queue share one" if fuse else "a task of its own for every step"
    yield f"{workflow.name}: {_n(len(workflow.forward), 'step')} in {_n(count, 'message')} ({way})"
    width = max(len(step.queue) for step in workflow.steps)
    for wave in waves:
        yield ""
        yield _title(workflow, wave)
        if wave.goes_on is not None:
            line = _line(workflow, wave.goes_on, width)
            yield f"  ↪ {line}   no message: the same worker goes on"
        for canvas in wave.canvases:
            yield from _tree(workflow, canvas, width)
    if undone := workflow.compensations:
        yield from ("", "If it must be undone, the last one first")
        yield from (f"  ─ {step.queue:<{width}}  {step.key}" for step in reversed(undone))


def _title(workflow: CompiledWorkflow, wave: Wave) -> str:
    if not wave.after:
        return "At the start"
    keys = [workflow.steps[position].key for position in wave.after]
    if wave.covers is not None:
        return f"If {keys[0]} has given up"
    return f"After {', '.join(keys[:-1])} and {keys[-1]}" if len(keys) > 1 else f"After {keys[0]}"


def _tree(workflow: CompiledWorkflow, canvas: Canvas, width: int) -> Iterator[str]:
    match canvas:
        case Stretch():
            yield f"  ─ {_line(workflow, canvas, width)}"
        case Chain(links):
            yield f"  Chain of {_n(len(links), 'message')}, one after the other"
            yield from _branches(workflow, links, width)
        case Chord(headers, body):
            yield f"  Chord of {_n(len(headers), 'header')}; the body when all have returned"
            for header in headers:
                yield f"  ├─ {_line(workflow, header, width)}"
            yield f"  ╰▶ {_line(workflow, body, width)}"


def _branches(workflow: CompiledWorkflow, links: tuple[Stretch, ...], width: int) -> Iterator[str]:
    for number, link in enumerate(links, start=1):
        bend = "╰─" if number == len(links) else "├─"
        yield f"  {bend} {_line(workflow, link, width)}"


def _line(workflow: CompiledWorkflow, stretch: Stretch, width: int) -> str:
    steps = [workflow.steps[ref.position] for ref in stretch.refs]
    path = " → ".join(step.key for step in steps)
    notes = [note for step in steps if (note := _note(step, workflow))]
    return f"{stretch.queue:<{width}}  {path}" + (f"   ({'; '.join(notes)})" if notes else "")


def _note(step: StepPlan, workflow: CompiledWorkflow) -> str:
    if step.for_each is not None:
        lanes = min(step.for_each.max_parallel, workflow.max_parallel)
        return f"for each item: up to {_n(lanes, 'lane')}, a message each"
    if step.repeat is not None:
        return f"up to {_n(step.repeat.max_rounds, 'round')}"
    return _WAITS.get(step.type, "")


def _n(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
