"""What the machine did meanwhile: CPU of our processes by name, of everybody else, the load."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one instant, in seconds: wall clock, whole machine busy, each of our names."""

    at: float
    busy: float
    by_name: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two readings. ``cpu`` in seconds by name."""

    wall: float
    cpu: Mapping[str, float]
    others: float
    load: float

    @property
    def note(self) -> str:
        """One phrase about the neighbours: how many cores they used, and the load average."""
        return f"others {self.others:.2f} cores, load {self.load:.1f}"


def read(trees: Mapping[str, list[int]]) -> Reading:
    """Counters now. ``trees``: root process ids by name; their children count too."""
    known = _children()
    by_name = {
        name: sum(_tree_seconds(root, known) for root in roots) for name, roots in trees.items()
    }
    return Reading(time.monotonic(), _busy_seconds(), by_name)


def between(first: Reading, last: Reading) -> Span:
    """The difference of two readings over the same names."""
    wall = last.at - first.at
    cpu = {name: last.by_name[name] - before for name, before in first.by_name.items()}
    others = max(0.0, last.busy - first.busy - sum(cpu.values())) / wall if wall else 0.0
    return Span(wall, cpu, others, os.getloadavg()[0])


def children(pid: int) -> list[int]:
    """Ids of the living children of a process, the oldest first."""
    return sorted(_children().get(pid, ()))


def memory(roots: Iterable[int]) -> int:
    """Bytes that these processes and their descendants hold for themselves (private pages)."""
    known, todo, total = _children(), list(roots), 0
    while todo:
        pid = todo.pop()
        todo.extend(known.get(pid, ()))
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Private_"):
                    total += int(line.split()[1]) * 1024
    return total


def describe() -> str:
    """The machine in one line."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, load {load}"


def _busy_seconds() -> float:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / _TICK


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            found.setdefault(int(fields[1]), []).append(int(folder.name))
    return found


def _tree_seconds(root: int, children: Mapping[int, list[int]]) -> float:
    """CPU of a process, of its living descendants, and of the dead ones it has reaped."""
    total = 0
    todo = [root]
    while todo:
        pid = todo.pop()
        fields = _stat(pid)
        if fields:
            total += sum(int(field) for field in fields[11:15])
            todo.extend(children.get(pid, ()))
    return total / _TICK


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name (state first); empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
