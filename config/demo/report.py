"""The end of the demo: the result, what each step took and cost, and where to look further."""

from __future__ import annotations

from collections.abc import Mapping

from config.demo.cast import Cast
from config.demo.screen import WIDTH, Screen, wrapped
from config.demo.wording import Story, length, money, table
from orchestrator.core.states import RunState
from orchestrator.models import Run, Step


def report(screen: Screen, run: Run, *, story: Story, cast: Cast, links: Mapping[str, str]) -> bool:
    """Say how the ended run went; whether it completed."""
    completed = run.state == RunState.COMPLETED
    _show_result(screen, run, completed=completed)
    _show_steps(screen, run, story)
    _show_links(screen, run, cast, links)
    return completed


def _show_result(screen: Screen, run: Run, *, completed: bool) -> None:
    say = screen.say
    say()
    if not completed:
        message = (run.error or {}).get("message", "")
        say(f"The run ended {run.state}. {message}", colour="red")
        return
    say(f"Result: {run.outcome}", colour="green" if run.outcome == "succeeded" else "yellow")
    for key, value in (run.output or {}).items():
        for number, line in enumerate(wrapped(str(value), WIDTH - 16)):
            say(f"  {'' if number else key:<12} {line}".rstrip())


def _show_steps(screen: Screen, run: Run, story: Story) -> None:
    steps = Step.objects.filter(run=run, scope="").order_by("started_at", "position")
    rows = [
        [
            story.title(step.key),
            step.type,
            step.state.replace("_", " "),
            str(step.attempt),
            _time(step),
            str(step.tokens_in + step.tokens_out or "-"),
            money(step.cost_microusd),
        ]
        for step in steps
    ]
    total = money(None if run.cost_unknown else run.cost_microusd)
    over = length(run.finished_at - run.created_at) if run.finished_at else ""
    tokens = str(run.tokens_in + run.tokens_out)
    rows.append(["All together", "", run.state.replace("_", " "), "", over, tokens, total])
    head = ["Step", "Type", "State", "Attempts", "Time", "Tokens", "Cost"]
    screen.say()
    for line in table(head, rows, right=(3, 4, 5, 6)):
        screen.say(f"  {line}")


def _show_links(screen: Screen, run: Run, cast: Cast, links: Mapping[str, str]) -> None:
    say = screen.say
    console = links.get("Console", "").rstrip("/")
    say()
    say("Look around", colour="bold")
    say(f"  This run   {console}/orchestrator/run/{run.pk}/change/")
    say(f"  Console    {console}/")
    say(f"             user demo, password {cast.password}  (kept in {cast.password_file})")
    say(f"  API        {links.get('API', '')}")
    say(f"             Authorization: Bearer <the token in {cast.token_file}>")
    if "Flower" in links:
        say(f"  Flower     {links['Flower']}")
        say(f"             user {links['flower_user']}, password {links['flower_password']}")
    say()


def _time(step: Step) -> str:
    if step.started_at is None or step.finished_at is None:
        return "-"
    waited = " (a person)" if step.type == "human_gate" else ""
    return length(step.finished_at - step.started_at) + waited
