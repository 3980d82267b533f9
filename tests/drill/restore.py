"""A backup restored beside an empty broker, while the world outside has moved on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from django.db import connection

from orchestrator import engine
from orchestrator.models import Run
from tests.chaos import shapes
from tests.chaos.processes import tail
from tests.chaos.shapes import Shape
from tests.chaos.storm import CALLER
from tests.drill.line import Line, Size
from tests.drill.scene import BOOTED, Scene, scene
from workflows_app.triggering import start

FLAGGED_S = 60.0
COUNTS = {Size.QUICK: 6, Size.SHORT: 24, Size.LONG: 200}


def _trade(name: str, tool: str, operation: str) -> Shape:
    """Work, then wait for a word, then the effect, then wait for another word, then work."""
    steps = {
        "begin": shapes.work("input.value"),
        "hear": {"type": "wait", "signal": "go", "timeout": "1h", "needs": ["begin"]},
        "act": {
            "type": "tool",
            "tool": tool,
            "needs": ["hear"],
            "input": {"reference": f"{operation}-${{{{ input.value }}}}"},
            "effect": {"key": f"{operation}:${{{{ input.value }}}}"},
        },
        "hear_again": {"type": "wait", "signal": "end", "timeout": "1h", "needs": ["act"]},
        "last": shapes.work("input.value", "hear_again", queue="agent"),
    }
    return Shape(
        name=name, steps=steps, expected=lambda given: {"last": {"value": given["value"] + 1}}
    )


PAY = _trade("trade_by_key", "chaos.pay_slowly", "charge")
ORDER = _trade("trade_by_look_up", "chaos.order_slowly", "order")


@dataclass
class Trade:
    """One affair of a client, who asks again with the same key for what is not known any more."""

    number: int
    shape: Shape
    operation: str
    run: UUID

    @property
    def reference(self) -> str:
        """Its name in the provider's book."""
        return f"{self.operation}-{self.number}"

    def body(self) -> dict[str, object]:
        """What the client sends."""
        return {"input": {"value": self.number, "sleep_ms": 0, "items": []}}


def restored(size: Size, seed: int) -> Iterator[Line]:
    """A third of the affairs is past the effect at the backup, a third is done after it, a third
    begins after it."""
    count = COUNTS[size] // 3
    with scene(lease_s=5, seed=seed, publish=(PAY, ORDER)) as here:
        here.fleet.start_ready(BOOTED)
        done = [_begin(here, n) for n in range(count)]
        _say(here, "go", done, "act")
        doing = [_begin(here, n) for n in range(count, 2 * count)]
        backup = _back_up(here)
        _say(here, "go", doing, "act")
        late = [_begin(here, n) for n in range(2 * count, 3 * count)]
        _say(here, "go", late, "act")
        _say(here, "end", done[: count // 2], "last")  # some have ended, which is forgotten again
        trades = done + doing + late
        before = here.applied("charge") | here.applied("order")
        _restore(here, backup)
        unknown = sum(not Run.objects.filter(pk=trade.run).exists() for trade in trades)
        broken = _resume(here, trades)
        broken += here.doubled() + here.faults()
        after = here.applied("charge") | here.applied("order")
        broken += [f"{name} stands {n} times" for name, n in after.items() if n != 1]
        broken += [f"{t.reference} was never done" for t in trades if t.reference not in after]
        yield Line(
            "P20", "a backup is restored beside an empty broker: all resumes, no effect twice",
            len(trades),
            {"effects": len(after), "done after the backup": len(doing) + len(late),
             "unknown runs asked for again": unknown, "new effects": len(after) - len(before)},
            broken,
        )  # fmt: skip


def _begin(here: Scene, number: int) -> Trade:
    shape, operation = ((PAY, "charge"), (ORDER, "order"))[number % 2]
    trade = Trade(number, shape, operation, uuid4())
    trade.run = start(CALLER, shape.name, trade.body(), key=trade.reference).run_id
    return trade


def _say(here: Scene, word: str, trades: list[Trade], then: str) -> None:
    """Say it to each, and return when the step behind the wait has completed in all of them."""
    for trade in trades:
        engine.send_signal(trade.run, name=word, signal_id=word, payload={}, actor="drill")
    runs = [trade.run for trade in trades]

    def through() -> bool:
        steps = Run.objects.filter(pk__in=runs, steps__key=then, steps__state="completed")
        return steps.count() == len(runs)

    here.fleet.until(through, 40, lambda: tail(here.fleet.logs))


def _back_up(here: Scene) -> Path:
    """pg_basebackup of the running server, with the log that it needs."""
    target = here.world.folder / "backup"
    done = subprocess.run(
        [
            str(here.world.postgres_programs / "pg_basebackup"),
            *("-h", str(here.world.postgres_socket.parent), "-U", "orchestrator"),
            *("-D", str(target), "-X", "stream", "-c", "fast"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here.say("the backup is made")
    return target


def _restore(here: Scene, backup: Path) -> None:
    """Everything ends at once; the backup takes the data's place, and the broker is empty."""
    for process in here.fleet.alive():
        here.fleet.kill(process)
    here.world.wipe_broker()
    here.world.replace_postgres(backup)
    here.world.start_broker()
    connection.close()
    here.say("the backup is restored")


def _resume(here: Scene, trades: list[Trade]) -> list[str]:
    """The product starts as the page on restoring says; clients ask and say everything again."""
    here.fleet.start_ready(BOOTED, after_restore=True)
    for trade in trades:
        trade.run = start(CALLER, trade.shape.name, trade.body(), key=trade.reference).run_id
        for word in ("go", "end"):
            run = Run.objects.get(pk=trade.run)
            if run.state != "completed":
                engine.send_signal(trade.run, name=word, signal_id=word, payload={}, actor="drill")
    try:
        here.place.await_end([trade.run for trade in trades], FLAGGED_S)
    except AssertionError as error:
        return [str(error)]
    wrong: list[str] = []
    for trade in trades:
        run = Run.objects.get(pk=trade.run)
        if (run.state, run.output) != ("completed", trade.shape.expected({"value": trade.number})):
            wrong.append(f"{trade.reference}: {run.pk} is {run.state} with {run.output}")
    return wrong
