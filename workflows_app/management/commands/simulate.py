"""``manage.py simulate``: what a run would come to, told at the terminal."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.source import SourceError, parse_json_body
from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.engine import PaperApproval, PaperEffect, Range, Simulation
from workflows_app import simulating
from workflows_app.errors import DocumentRefused
from workflows_app.management.terminal import (
    add_tenant,
    operator,
    problem_lines,
    read_document,
    refused,
    tenant_of,
)
from workflows_app.principal import Principal
from workflows_app.simulating import SimulationBody

AT_THE_TERMINAL = 50_000
"""How many answers may be asked for here, where nobody else waits."""


class Command(BaseCommand):
    """Nothing is stored and nobody is called; exit 1 when the run would not complete."""

    help = "Simulate a published workflow, a document (FILE), or a run again (--from-run)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``[NAME|FILE] [--input …] [--from-run ID] [--answers …] [--json] [--tenant T]``."""
        parser.add_argument("source", nargs="?", metavar="NAME|FILE")
        parser.add_argument("--input", help="JSON, or @ and the name of a file")
        parser.add_argument("--from-run", type=UUID, metavar="ID", help="take its data")
        parser.add_argument("--answers", default="{}", help="JSON, or @ and the name of a file")
        parser.add_argument("--use-version", type=int, metavar="N", help="instead of the default")
        parser.add_argument("--json", action="store_true", help="as the API answers it")
        add_tenant(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the simulation."""
        principal = operator(tenant_of(options))
        try:
            found = self._simulated(principal, options)
        except OrchestratorError as error:
            raise refused(error) from error
        if options["json"]:
            body = orjson.dumps(found.as_json(), option=orjson.OPT_INDENT_2, default=str)
            self.stdout.write(body.decode())
        else:
            self.stdout.write("\n".join(_lines(found)))
        if found.state != RunState.COMPLETED:
            sys.exit(1)

    def _simulated(self, principal: Principal, options: dict[str, Any]) -> Simulation:
        source, wish = options["source"], _wish(options)
        if source is None or not Path(source).is_file():
            if source is not None:
                wish["workflow"] = source
            return simulating.simulate(
                principal, SimulationBody.read(wish), max_answers=AT_THE_TERMINAL
            )
        text, media_type = read_document(source)
        try:
            subject = simulating.draft_of(principal.tenant, text, media_type)
        except (DocumentRefused, SourceError) as error:
            found = error.findings if isinstance(error, DocumentRefused) else error.problems
            self.stderr.write("\n".join(problem_lines(source, found)))
            raise CommandError(f"{source} cannot be simulated.") from None
        return simulating.simulate_subject(
            principal, subject, SimulationBody.model_validate(wish), max_answers=AT_THE_TERMINAL
        )


def _wish(options: dict[str, Any]) -> dict[str, Any]:
    wish: dict[str, Any] = {"answers": _json(options["answers"], "--answers")}
    if options["input"] is not None:
        wish["input"] = _json(options["input"], "--input")
    if options["from_run"] is not None:
        wish["from_run"] = str(options["from_run"])
    if options["use_version"] is not None:
        wish["version"] = options["use_version"]
    return wish


def _json(text: str, option: str) -> Any:
    try:
        data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        return parse_json_body(data)
    except OSError as error:
        raise CommandError(f"{text[1:]} cannot be read: {error.strerror}.") from error
    except SourceError as error:
        raise CommandError(f"{option} is not JSON: {error}") from error


# -- for people ------------------------------------------------------------------------------------


def _lines(found: Simulation) -> Iterator[str]:
    version = f" version {found.version}" if found.version else ", not published"
    yield f"{found.title}: {found.workflow}{version}, simulated: nothing was stored or called."
    yield _ending(found)
    yield ""
    yield from _path(found, "  ")
    yield from _table("Effects that would be made", [_effect(each) for each in found.effects])
    yield from _table("People who would be asked", [_approval(each) for each in found.approvals])
    yield from _table("Assumed", [[step, words] for step, words in found.assumptions])
    yield ""
    yield _expected("Time", found.seconds, _span, found.runs)
    yield _expected("  of it waiting", found.waiting_s, _span, 0)
    yield _expected("Cost", found.usd, lambda value: f"{value:.6f} USD", found.runs)


def _ending(found: Simulation) -> str:
    words = [f"Would end {found.state}" if _ended(found) else f"Would stand {found.state}"]
    if found.waiting_for:
        words.append(f"for {found.waiting_for}")
    if found.outcome:
        words.append(f"with outcome {found.outcome}")
    if found.compensation:
        words.append(f"(compensation {found.compensation})")
    error = f": {found.error.get('message', '')}" if found.error else ""
    return " ".join(words) + (error or ".")


def _ended(found: Simulation) -> bool:
    return RunState(found.state) in RUN_TERMINAL


def _path(found: Simulation, indent: str) -> Iterator[str]:
    width = max((len(step.name) for step in found.path), default=0)
    for step in found.path:
        error = f"  {step.error.get('message', '')}" if step.error else ""
        again = f"  attempt {step.attempts}" if step.attempts > 1 else ""
        why = f"  {step.why}" if step.why else ""
        span = 0.0 if step.ends_s is None else step.ends_s - (step.starts_s or 0)
        took = _span(span) if span else ""
        yield (
            f"{indent}{step.name:<{width}}  {step.state:<11} {step.source:<9} {took:>9}"
            f"{again}{why}{error}"
        ).rstrip()
        if step.child is not None:
            yield from _path(step.child, indent + "    ")


def _effect(effect: PaperEffect) -> list[str]:
    course = "" if effect.course == "call" else f"not called, {effect.course}: {effect.held_by}"
    undoes = f"undoes {effect.undoes}" if effect.undoes else ""
    marks = ", ".join(word for word in ("money", "irreversible") if getattr(effect, word))
    return [effect.step, effect.key, effect.tool, course or undoes, marks]


def _approval(approval: PaperApproval) -> list[str]:
    asked = approval.asked
    who = ", ".join(asked.get("assignees", ()))
    limit = f"within {_span(asked['timeout_s'])}" if "timeout_s" in asked else ""
    return [approval.step, who, limit, f"{approval.decision} ({approval.source})"]


def _table(title: str, rows: list[list[str]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"{title}:"
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _span(seconds: float) -> str:
    return engine.length(timedelta(seconds=seconds)) if seconds else "none"


def _expected(title: str, found: Range, told: Callable[[float], str], runs: int) -> str:
    unknown = f"unknown for {', '.join(found.unknown)}"
    if found.unknown and not found.p95:
        return f"{title}: {unknown}"
    low, high = told(found.p50), told(found.p95)
    span = low if low == high else f"{low} (p50) to {high} (p95)"
    basis = f", by {runs} earlier run{'s' if runs != 1 else ''}" if runs else ""
    return (
        f"{title}: at least {span}{basis}; {unknown}"
        if found.unknown
        else f"{title}: {span}{basis}"
    )
