"""Where the engine's time goes: the throughput figure in one process and one thread, no broker."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.documents import BODIES
from bench.sides import Ours
from bench.statements import forget_statements, functions, lines, statements, tables, wal_bytes
from config.env import BASE_DIR
from orchestrator import engine
from orchestrator.core.canvas import Stretch, compile_canvas
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.engine.ports import WakeUps
from orchestrator.models.rows import RunRow
from orchestrator.tasks.names import parse_path, path_of

SHOWN = 30


class Carrier:
    """Wake-ups in a deque of this process; fills the engine's ``Dispatcher`` port."""

    def __init__(self) -> None:
        self._orders: deque[engine.Order] = deque()

    def dispatch(self, run: RunRow, workflow: CompiledWorkflow, refs: Sequence[Ref]) -> None:
        """Keep the first message of each canvas; a chain of one queue has no other."""
        for canvas in compile_canvas(workflow, refs):
            if not isinstance(canvas, Stretch):
                raise TypeError(f"the profile runs stretches only, not {type(canvas).__name__}")
            key, scope = parse_path(path_of(workflow, canvas.refs))
            self._orders.append(engine.Order(run_id=run.id, key=key, scope=scope))

    def dispatch_all(self, orders: Sequence[WakeUps]) -> None:
        """Each run's by itself."""
        for run, workflow, refs in orders:
            self.dispatch(run, workflow, refs)

    def dispatch_after(
        self,
        commit: Callable[[], None],
        run: RunRow,
        workflow: CompiledWorkflow,
        refs: Sequence[Ref],
    ) -> None:
        """The same, once the run is written."""
        commit()
        self.dispatch(run, workflow, refs)

    def depth(self, queue: str) -> int:
        """Nobody else waits."""
        del queue
        return 0

    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        """A worker that never gives way."""
        del own_messages
        return True

    def drain(self) -> int:
        """Run everything; how many bodies."""
        count = 0
        while self._orders:
            count += engine.run_step(self._orders.popleft(), self)
        return count


def profile(runs: int, shape: str) -> None:
    """Print the costs a step: as a whole, by Python function, by statement."""
    carrier = Carrier()
    engine.set_dispatcher(carrier)
    ours = Ours()
    _start(ours, 20, shape)
    carrier.drain()  # imports, caches, plans
    _print_clock("starting a run", runs, lambda: _start(ours, runs, shape))
    _print_clock(f"a step of {shape}", runs * BODIES[shape], carrier.drain)
    _start(ours, runs, shape)
    forget_statements(nested=True)
    profiler = cProfile.Profile()
    steps = profiler.runcall(carrier.drain)
    _print_python(profiler, steps)
    _print_database(steps)


def _start(ours: Ours, runs: int, shape: str) -> None:
    for _ in range(runs):
        ours.start(shape)


def _print_clock(what: str, count: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{what}: {wall * 1e6 / count:.0f} us, of which {cpu * 1e6 / count:.0f} us CPU here and"
        f" {(wall - cpu) * 1e6 / count:.0f} us waiting for PostgreSQL ({count / wall:.0f}/s)"
    )


def _print_python(profiler: cProfile.Profile, steps: int) -> None:
    found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    rows = [(own, total, calls, _where(*key)) for key, (_, calls, own, total, _) in found.items()]
    print(f"\nPython, {steps} steps under cProfile (it doubles the cost of calls); us a step")
    _print_rows("by own time", sorted(rows, reverse=True)[:SHOWN], steps)
    ours = [row for row in rows if not row[3].startswith(("<", "~", "/"))]
    by_total = sorted(ours, key=lambda row: row[1], reverse=True)[:SHOWN]
    _print_rows("by time with what they call, our own functions", by_total, steps)


def _print_rows(title: str, rows: list[tuple[float, float, int, str]], steps: int) -> None:
    print(f"\n  {title}\n  {'own':>7} {'total':>7} {'calls':>6}")
    for own, total, calls, where in rows:
        line = f"{own * 1e6 / steps:7.1f} {total * 1e6 / steps:7.1f} {calls / steps:6.1f}"
        print(f"  {line}  {where}")


def _where(file: str, line: int, name: str) -> str:
    path = Path(file)
    if path.is_relative_to(BASE_DIR) and ".venv" not in path.parts:
        return f"{path.relative_to(BASE_DIR)}:{line} {name}"
    short = "/".join(path.parts[-3:]) if path.is_absolute() else file
    return f"<{short}:{line}> {name}"


def _print_database(steps: int) -> None:
    print("\nPostgreSQL by statement, nested ones too\n")
    print("\n".join(lines(statements(), steps, limit=SHOWN)))
    print(f"\nPostgreSQL by function; us a step\n\n  {'own':>7} {'total':>7} {'calls':>6}")
    for name, calls, total, own in functions():
        cost = f"{own * 1e3 / steps:7.1f} {total * 1e3 / steps:7.1f} {calls / steps:6.2f}"
        print(f"  {cost}  {name}")
    print(f"\nWAL: {wal_bytes() / steps:.0f} bytes a step. Rows written a step\n")
    print(f"  {'inserted':>8} {'updated':>8} {'hot':>8} {'deleted':>8}")
    for name, *counts in tables():
        print("  " + " ".join(f"{count / steps:8.2f}" for count in counts) + f"  {name}")
