"""Starting a run from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack
from uuid import UUID

from django.db import transaction

from orchestrator.crash import Unit
from orchestrator.engine.births import Birth, Newborn, check_input, conceive, deliver, give_birth
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Blueprint
from orchestrator.models.direct import Call


def start_run(**given: Unpack[Given]) -> UUID:
    """Start a run; its id. Joins the caller's transaction, else opens one; wakes workers on commit.

    Raises InvalidRequest (``input_invalid``, with pointers) when the input breaks the document's
    schema; nothing is stored then.
    """
    return start_prepared(prepare_start(**given))


class Given(TypedDict, total=False):
    """What a run is made of. ``correlation_id`` None: the run's own id. ``context`` is the caller's
    metadata, stored and returned."""

    tenant: Required[str]
    blueprint: Required[Blueprint | int]
    workflow: Required[str]
    version: Required[int]
    input: Required[Any]
    actor: Required[str]
    correlation_id: str | None
    context: Any
    trigger: Mapping[str, Any]
    traceparent: str


def prepare_start(**given: Unpack[Given]) -> Newborn:
    """Check and decide a start; nothing is written. Raises as ``start_run``."""
    blueprint = given["blueprint"]
    blueprint_id = blueprint if isinstance(blueprint, int) else blueprint.pk
    plan = compiled(blueprint_id)
    check_input(plan, given["input"])
    birth = Birth(
        tenant=given["tenant"],
        blueprint_id=blueprint_id,
        workflow_name=given["workflow"],
        version=given["version"],
        input=given["input"],
        actor=given["actor"],
        correlation_id=given.get("correlation_id"),
        context=given.get("context"),
        trigger=given.get("trigger") or {},
        traceparent=given.get("traceparent", ""),
    )
    return conceive(birth, plan)


def start_prepared(newborn: Newborn, beside: Sequence[Call] = ()) -> UUID:
    """Write what was prepared; its id. ``beside``, only of one that ``stands_alone``: statements of
    the caller's own in the same transaction, before it; what one of them raises is raised."""
    if newborn.stands_alone:
        return deliver(newborn, beside)
    if beside:
        raise ValueError("this start stands in a transaction: write in that one")
    with Unit("start", savepoint=False):
        settled = give_birth(newborn)
        transaction.on_commit(settled.send)
    return settled.run_id
