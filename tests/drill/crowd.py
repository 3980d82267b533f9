"""Many branches of one run that end in the same instant, and a child that never comes back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psutil
from django.db import connection

from orchestrator import engine
from orchestrator.authoring import ToolContext, tool
from orchestrator.models import Run
from tests.chaos import checks, shapes
from tests.chaos.app.tools import write_line
from tests.chaos.shapes import Shape
from tests.drill.line import Line, Size
from tests.drill.scene import BOOTED, Scene, ask, scene
from tests.engine.carrier import Always

WIDE = 50
ROUNDS = {Size.QUICK: 2, Size.SHORT: 4, Size.LONG: 100}
_together = threading.Barrier(WIDE)


@tool("crowd.together", idempotent=True)
def together(ctx: ToolContext, value: int) -> dict[str, int]:
    """One more than ``value``, said by all branches in the same instant."""
    write_line(ctx)
    _together.wait(30)
    return {"value": value + 1}


def _crowd() -> Shape:
    keys = [f"b{n}" for n in range(WIDE)]
    branch = {"type": "tool", "tool": "crowd.together", "input": {"value": "${{ input.value }}"}}
    steps: dict[str, Any] = dict.fromkeys(keys, branch)
    steps["join"] = shapes.total([shapes.value_of(key) for key in keys], *keys)
    return Shape(
        name="crowd",
        steps=steps,
        expected=lambda given: {"join": {"value": WIDE * (given["value"] + 1)}},
        more={"max_parallel": WIDE},
    )


def joined_once(size: Size, seed: int) -> Iterator[Line]:
    """Fifty threads with connections of their own settle the last branches of one run at once."""
    crowd = _crowd()
    broken: list[str] = []
    with scene(lease_s=15, seed=seed, publish=(crowd,)) as here:
        os.environ["DATABASE_URL"] = here.world.urls["DATABASE_URL"]  # the bodies' ledger
        for number in range(ROUNDS[size]):
            run = here.place.start(crowd, value=number)
            broken += _complete_all(run)
            broken += _joined_wrongly(run, crowd, number)
        broken += checks.breaches()
    yield Line(
        "P1", f"{WIDE} branches of one run complete in the same instant: the join fires once",
        ROUNDS[size] * WIDE, {"rounds": ROUNDS[size], "joins": ROUNDS[size]}, broken,
    )  # fmt: skip


def _complete_all(run: UUID) -> list[str]:
    wrong: list[str] = []

    def work(key: str) -> None:
        try:
            engine.run_step(engine.Order(run_id=run, key=key), Always())
        except Exception as error:  # noqa: BLE001 - it is what this drill looks for
            wrong.append(f"{key}: {type(error).__name__}: {error}")
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(f"b{n}",)) for n in range(WIDE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.run_step(engine.Order(run_id=run, key="join"), Always())  # if no lane went on with it
    return wrong


def _joined_wrongly(run: UUID, crowd: Shape, value: int) -> list[str]:
    found = Run.objects.get(pk=run)
    broken: list[str] = []
    if (found.state, found.output) != ("completed", crowd.expected({"value": value})):
        broken.append(f"{run} is {found.state} with {found.output}")
    times = dict(
        ask(
            "SELECT type, count(*) FROM orchestrator_event WHERE run_id = %s AND step = 'join'"
            " GROUP BY type",
            run,
        )
    )
    wanted = ("step.ready", "step.started", "step.completed")
    wrong = {kind: times.get(kind, 0) for kind in wanted if times.get(kind) != 1}
    return broken + [f"{run} has {count} {kind} of its join" for kind, count in wrong.items()]


# -- a child that does not come back ---------------------------------------------------------------
STEP_S, GRACE_S, RENEW_S = 2.0, 5.0, 2.0
_HANG = {
    "type": "tool", "tool": "chaos.hang", "input": {}, "timeout": f"{STEP_S:.0f}s",
    "retry": {"max_retries": 0},
}  # fmt: skip


def _parent(name: str, child: str) -> Shape:
    given = {"value": "${{ input.value }}", "sleep_ms": 0, "items": []}
    steps = {
        "call": {"type": "sub_workflow", "workflow": child, "input": given},
        "rescue": shapes.work("input.value", "call"),
        "never": shapes.work("input.value", "call"),
    }
    steps["rescue"]["needs"] = [{"step": "call", "on": "failed"}]
    return Shape(
        name=name, steps=steps, expected=lambda given: {"rescue": {"value": given["value"] + 1}}
    )


CHILDREN = (
    Shape(name="child_hangs", steps={"hang": _HANG}, state="failed"),
    Shape(
        name="child_waits",
        steps={"hear": {"type": "wait", "signal": "never", "timeout": "1h"}},
        state="timed_out",
        more={"timeout": "3s"},
    ),
)
PARENTS = (_parent("parent_of_hanging", "child_hangs"), _parent("parent_of_waiting", "child_waits"))


def child_stuck(size: Size, seed: int) -> Iterator[Line]:
    """A child's body hangs, another child waits for ever: both time out into ``on: failed``."""
    count = 10 if size is Size.LONG else 2
    broken: list[str] = []
    with scene(lease_s=6, seed=seed, publish=(*CHILDREN, *PARENTS)) as here:
        here.fleet.start_ready(BOOTED)
        runs = {
            here.place.start(shape, value=n, sleep_ms=0): (shape, n)
            for n in range(count)
            for shape in PARENTS
        }
        try:
            here.place.await_end(list(runs), 30 + 5 * count)
        except AssertionError as error:
            broken.append(str(error))
        for run, (shape, n) in runs.items():
            broken += _ended_wrongly(run, shape, n)
        lives = _left_hanging(here)
        broken += [f"the process {pid} of a body that hangs still lives" for pid in lives]
        broken += checks.what_verify_finds()
        took = ask(
            "SELECT max(extract(epoch FROM finished_at - created_at))::float8"
            " FROM orchestrator_run WHERE id = ANY(%s)",
            list(runs),
        )
    yield Line(
        "P13", "a stuck child times out into its parent's failed edge; a hanging body is ended",
        len(runs), {"slowest s": round(took[0][0], 1), "hanging processes left": len(lives)},
        broken,
    )  # fmt: skip


def _ended_wrongly(run: UUID, shape: Shape, value: int) -> list[str]:
    parent = Run.objects.get(pk=run)
    broken: list[str] = []
    if (parent.state, parent.output) != ("completed", shape.expected({"value": value})):
        broken.append(f"{shape.name} {run} is {parent.state} with {parent.output}: {parent.error}")
    wanted = {f"parent_of_{c.name.removeprefix('child_')[:4]}": c.state for c in CHILDREN}
    for child in Run.objects.filter(parent_id=run):
        name = f"parent_of_{child.workflow.removeprefix('child_')[:4]}"
        if child.state != wanted[name]:
            broken.append(f"the child {child.pk} of {shape.name} is {child.state}")
    return broken


def _left_hanging(here: Scene) -> list[int]:
    """Processes of hanging bodies that are still there when their grace is over."""
    pids = [pid for (pid,) in ask("SELECT pid FROM chaos_ledger WHERE step = 'hang'")]
    until = time.monotonic() + STEP_S + GRACE_S + 2 * RENEW_S + 2
    while (alive := [p for p in pids if psutil.pid_exists(p)]) and time.monotonic() < until:
        here.fleet.listen(0.2)
    return alive
