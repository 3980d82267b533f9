"""The stored form of a golden history, and reading it back without a database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.decision import Ref
from orchestrator.core.definition import parse_document
from orchestrator.core.replay_end import StoredRun, StoredStep
from orchestrator.core.replay_log import Recorded
from orchestrator.core.snapshot import Code, Loop, Mark, Snapshot, Verdict

FOLDER = Path(__file__).parent
# The queues of the day: no decision looks at them, but a workflow cannot be compiled without.
QUEUES = {
    "tool": "tool",
    "agent": "agent",
    "router": "engine",
    "wait": "engine",
    "human_gate": "approval",
    "sub_workflow": "subworkflow",
}


def files() -> list[Path]:
    return sorted(FOLDER.glob("v*/*.json"))


def read(file: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = orjson.loads(file.read_bytes())["runs"]
    return runs


def write(file: Path, test: str, runs: list[dict[str, Any]]) -> None:
    """One line of history a line of the file, so that a person can read it."""
    lines = [f'{{"test": {_json(test)}, "runs": [']
    for number, run in enumerate(runs):
        parts = [f'  "{name}": {_json(value)}' for name, value in run.items() if name != "history"]
        history = ",\n    ".join(_json(line) for line in run["history"])
        parts.append(f'  "history": [\n    {history}\n  ]')
        lines.append(" {\n" + ",\n".join(parts) + "\n }" + ("," if number < len(runs) - 1 else ""))
    file.write_text("\n".join([*lines, "]}"]) + "\n")


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


# -- read back -------------------------------------------------------------------------------------


def workflow_of(run: dict[str, Any]) -> CompiledWorkflow:
    document, problems = parse_document(run["document"])
    assert document is not None, problems
    return compile_workflow(
        document,
        run["document"],
        queues=QUEUES,
        pins=run["pins"],
        undoable=run.get("undoable", ()),
    )


def lines_of(run: dict[str, Any]) -> list[Recorded]:
    return [Recorded(*line) for line in run["history"]]


def end_of(run: dict[str, Any]) -> tuple[StoredRun, list[StoredStep]]:
    end = dict(run["end"])
    steps = [StoredStep(**{**row, "ref": Ref(*row["ref"])}) for row in end.pop("steps")]
    return StoredRun(**{**end, "snapshot": _snapshot(end["snapshot"])}), steps


def snapshot_as_json(snapshot: Snapshot) -> dict[str, Any]:
    """By names, so that another packing of the bytes does not matter."""
    codes = [Code(snapshot.code(position)).name for position in range(len(snapshot.codes))]
    return {
        "codes": codes,
        "marks": [Mark(mark).name for mark in snapshot.marks],
        "running": snapshot.running,
        "paused": snapshot.paused,
        "loops": {str(position): loop.as_json() for position, loop in snapshot.loops.items()},
        "held": snapshot.held,
        "barred": snapshot.barred,
        "reopened": snapshot.reopened,
        "warnings": snapshot.warnings,
        "verdict": asdict(snapshot.verdict) if snapshot.verdict else None,
        **({"acted": snapshot.acted} if snapshot.acted else {}),
    }


def _snapshot(value: dict[str, Any]) -> Snapshot:
    verdict = value["verdict"]
    return Snapshot(
        **{
            **value,
            "codes": bytearray(Code[name] for name in value["codes"]),
            "marks": bytearray(Mark[name] for name in value["marks"]),
            "loops": {int(place): Loop(**loop) for place, loop in value["loops"].items()},
            "verdict": Verdict(**verdict) if verdict else None,
        }
    )
