"""The planning case in numbers: ``python -m bench.scale`` prints the tables of docs/scale.md.

Everything is worked out from the measured costs below and the assumptions beside them: measure
again, change them, print again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DAY_S = 86_400
GB = 1e9
TIMES = "\u00d7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one step, event and waiting run cost (docs/performance.md says how it was measured)."""

    step_bytes: float = 816  # its row with indexes, no output to speak of
    run_bytes: float = 1_060
    event_bytes: float = 199  # our own lines, with the index
    event_beside_payload_bytes: float = 150
    waiting_bytes: float = 3_736  # at a gate, all tables
    waiting_events: int = 6
    wal_step_bytes: float = 2_558
    worker_ms: float = 2.25  # a step that is a message of its own, Celery included
    postgres_ms: float = 1.4
    broker_ms: float = 0.18
    fused_worker_ms: float = 0.52  # a step of a fused stretch
    fused_postgres_ms: float = 0.40


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What nobody measured: the shape of the load, and prices that stand for list prices of large
    clouds in 2026, to be replaced by your own."""

    steps_a_day: float = 100e6
    steps_a_run: float = 10
    events_a_run: float = 40
    open_runs: float = 10e6
    body_s: float = 0.05
    headroom: float = 2.0
    busy: float = 0.6  # of a machine's cores, at the planned peak with its headroom
    worker_cores: int = 16
    database_cores: int = 32
    broker_core_share: float = 0.7  # a Valkey has one core
    days_online: int = 30
    core_hour: float = 0.04
    disk_gb_month: float = 0.10
    archive_gb_month: float = 0.023
    archive_ratio: float = 0.2  # compressed


def main() -> None:
    """Print all tables."""
    print(tables(Measured(), Assumed()))


def tables(cost: Measured, load: Assumed) -> str:
    """The tables of docs/scale.md, in order, each under its title."""
    parts = [
        ("Machines", _machines(cost, load)),
        ("Storage", _storage(cost, load)),
        ("Open runs", _open_runs(cost)),
        ("Cost of a month", _money(cost, load)),
    ]
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts)


def _rates(load: Assumed) -> Iterable[tuple[int, int, float]]:
    for times in (1, 2, 10):
        for peak in (3, 5, 10):
            mean = load.steps_a_day / DAY_S * times
            yield times, peak, mean * peak * load.headroom


def _machines(cost: Measured, load: Assumed) -> str:
    rows = []
    for times, peak, rate in _rates(load):
        workers, database, broker = _cores(cost, rate)
        rows.append(
            [
                f"{times} {TIMES}",
                f"{peak} {TIMES}",
                f"{rate:,.0f}",
                f"{workers:,.0f} ({_ceil(workers / load.busy / load.worker_cores)})",
                f"{database:,.0f} ({_partitions(cost, load, rate)})",
                f"{_ceil(broker / load.broker_core_share)}",
                f"{rate / load.headroom * load.body_s:,.0f}",
                f"{rate * cost.wal_step_bytes / 1e6:,.0f}",
                f"{rate * cost.fused_postgres_ms / 1000:,.0f}",
            ]
        )
    head = ["load", "peak", "steps/s, doubled", "worker cores (machines)"]
    head += ["PostgreSQL cores (partitions)", "Valkeys", "bodies at once", "WAL MB/s"]
    head += ["PostgreSQL cores if fused"]
    return _table(head, rows)


def _cores(cost: Measured, rate: float) -> tuple[float, float, float]:
    parts = (cost.worker_ms, cost.postgres_ms, cost.broker_ms)
    workers, database, broker = (rate * ms / 1000 for ms in parts)
    return workers, database, broker


def _partitions(cost: Measured, load: Assumed, rate: float) -> int:
    return _ceil(rate * cost.postgres_ms / 1000 / load.busy / load.database_cores)


def _storage(cost: Measured, load: Assumed) -> str:
    rows = []
    for times in (1, 2, 10):
        for payload, word in ((0, "own lines"), (1_000, "1 KB"), (2_000, "2 KB")):
            a_day = _bytes_a_day(cost, load, payload) * times
            online = a_day * load.days_online
            rows.append(
                [
                    f"{times} {TIMES}",
                    word,
                    f"{a_day / GB:,.0f}",
                    f"{online / GB / 1000:,.1f}",
                    f"{a_day * 365 * load.archive_ratio / GB / 1000:,.1f}",
                ]
            )
    head = ["load", "an event", "GB a day", f"TB for {load.days_online} days"]
    return _table([*head, "TB of archive a year"], rows)


def _bytes_a_day(cost: Measured, load: Assumed, payload: int) -> float:
    runs = load.steps_a_day / load.steps_a_run
    event = payload + cost.event_beside_payload_bytes if payload else cost.event_bytes
    return (
        load.steps_a_day * cost.step_bytes
        + runs * cost.run_bytes
        + runs * load.events_a_run * event
    )


def _open_runs(cost: Measured) -> str:
    rows = []
    for millions in (1, 10, 20, 100):
        waiting = [
            millions * 1e6 * (cost.waiting_bytes + cost.waiting_events * more) / GB
            for more in (0, 1_000, 2_000)
        ]
        rows.append([f"{millions} million", *(f"{gb:,.0f}" for gb in waiting)])
    return _table(["open runs", "GB, own lines", "GB, 1 KB events", "GB, 2 KB events"], rows)


def _money(cost: Measured, load: Assumed) -> str:
    rows = []
    for times in (1, 2, 10):
        rate = load.steps_a_day / DAY_S * times * 10 * load.headroom
        workers, database, broker = (cores / load.busy for cores in _cores(cost, rate))
        machines = (workers + 2 * database + 2 * broker) * 730 * load.core_hour
        a_day = _bytes_a_day(cost, load, 1_000) * times
        disk = 2 * a_day * load.days_online / GB * load.disk_gb_month
        archive = a_day * 365 * load.archive_ratio / GB * load.archive_gb_month
        total = machines + disk + archive
        rows.append(
            [
                f"{times} {TIMES}",
                *(f"{part:,.0f}" for part in (machines, disk, archive, total)),
                f"{total / (load.steps_a_day * times * 30 / 1e6):,.2f}",
            ]
        )
    return _table(
        ["load", "machines $", "disks $", "archive $", "a month $", "$ a million steps"], rows
    )


def _ceil(value: float) -> int:
    return -int(-value // 1)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
