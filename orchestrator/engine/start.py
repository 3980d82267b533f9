"""Starting a run from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.crash import Unit
from orchestrator.engine.births import Birth, check_input, conceive, deliver, give_birth
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Blueprint
from orchestrator.models.direct import is_free


def start_run(  # noqa: PLR0913 - a run is made of this much; keyword-only
    *,
    tenant: str,
    blueprint: Blueprint,
    workflow: str,
    version: int,
    input: Any,  # noqa: A002 - the word of the contract
    actor: str,
    correlation_id: str | None = None,
    context: Any = None,
    trigger: Mapping[str, Any] | None = None,
    traceparent: str = "",
) -> UUID:
    """Start a run; its id. Joins the caller's transaction, else opens one; wakes workers on commit.

    ``correlation_id`` None: the run's own id. ``context`` is the caller's metadata, stored and
    returned. Raises InvalidRequest (``input_invalid``, with pointers) when the input breaks the
    document's schema; nothing is stored then.
    """
    plan = compiled(blueprint.pk)
    check_input(plan, input)
    birth = Birth(
        tenant=tenant,
        blueprint_id=blueprint.pk,
        workflow_name=workflow,
        version=version,
        input=input,
        actor=actor,
        correlation_id=correlation_id,
        context=context,
        trigger=trigger or {},
        traceparent=traceparent,
    )
    newborn = conceive(birth, plan)
    if newborn.is_plain and is_free():
        return deliver(newborn)
    with Unit("start", savepoint=False):
        settled = give_birth(newborn)
        transaction.on_commit(settled.send)
    return settled.run_id
