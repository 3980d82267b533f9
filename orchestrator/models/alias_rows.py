"""Aliases of models that the console sets: the newest row of each name stands."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.models.statements import execute, fetch_all_prepared


def newest() -> dict[str, list[str]]:
    """Each alias that the console has set, with its targets; none of those given back."""
    found = fetch_all_prepared(
        "SELECT DISTINCT ON (name) name, targets FROM orchestrator_modelalias"
        " ORDER BY name, id DESC",
        [],
    )
    return {name: list(targets) for name, targets in found if targets}


def insert(name: str, targets: Sequence[str], *, actor: str, reason: str) -> None:
    """From now on the alias leads there."""
    execute(
        "INSERT INTO orchestrator_modelalias (name, targets, actor, reason, at)"
        " VALUES (%s, %s, %s, %s, orchestrator_now())",
        [name, list(targets), actor, reason],
    )


def line_up(gates: Sequence[str], alias_gate: str) -> None:
    """Steps that ask by the alias and wait for a model that it led to wait for the alias itself
    from now on: they are let go with the next sweep, and look anew."""
    execute(
        "UPDATE orchestrator_step SET waiting_key = %s WHERE state = 'waiting'"
        " AND waiting_for = 'service' AND waiting_key = ANY(%s) AND %s = ANY(gates)",
        [alias_gate, list(gates), alias_gate],
    )
