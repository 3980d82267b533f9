"""How work is named in messages: ``run_id`` and a path of steps, so that Flower shows both."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref


def path_of(workflow: CompiledWorkflow, refs: Sequence[Ref]) -> str:
    """``draft>check``, or ``pages[3]`` for an item."""
    return ">".join(
        workflow.steps[ref.position].key + ("" if ref.item is None else f"[{ref.item}]")
        for ref in refs
    )


def parse_path(path: str) -> tuple[str, str]:
    """Key and scope of the first step of a path."""
    first = path.partition(">")[0]
    key, bracket, rest = first.partition("[")
    return key, bracket + rest
