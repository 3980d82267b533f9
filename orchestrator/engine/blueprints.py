"""Blueprints: registered once, compiled once a process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from orchestrator.adapters.llm import models
from orchestrator.authoring import registry
from orchestrator.conf import engine_settings
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.definition import (
    Document,
    canonical_json,
    digest,
    document_edges,
    parse_document,
)
from orchestrator.core.errors import NotFound, Unreadable
from orchestrator.core.gates import model_gates
from orchestrator.core.site import Site
from orchestrator.core.undo_steps import undoes_something
from orchestrator.crash import Unit
from orchestrator.engine import aliases
from orchestrator.executors.registry import get_executor
from orchestrator.models import Blueprint, EdgeDefinition, StepDefinition

SELF = "self"
"""The pin of a child that is the workflow itself."""

_KEPT = 512
_STEP_TYPES = ("agent", "tool", "human_gate", "sub_workflow", "router", "wait")


def pinned_digest(canonical: bytes, pins: Mapping[str, str]) -> str:
    """SHA-256 over the canonical document and the digests its children are pinned to."""
    if not pins:
        return digest(canonical)
    return hashlib.sha256(canonical + b"\n" + canonical_json(dict(pins))).hexdigest()


@Unit("blueprint")
def register_blueprint(
    *,
    tenant: str,
    document: Document,
    value: Mapping[str, Any],
    canonical: bytes,
    pins: Mapping[str, str],
    version: int = 1,
) -> Blueprint:
    """The frozen blueprint of this document; the same document with the same pins is one row.

    ``document`` must have passed validation; ``value`` is its plain JSON and ``canonical`` the
    canonical bytes of it, ``version`` the number that it is first published as.
    """
    blueprint, created = Blueprint.objects.get_or_create(
        tenant=tenant,
        digest=pinned_digest(canonical, pins),
        defaults={
            "name": document.name,
            "document": value,
            "canonical": canonical,
            "pins": dict(pins),
            "version": version,
        },
    )
    if created:
        _describe(blueprint, document, value)
    return blueprint


def _describe(blueprint: Blueprint, document: Document, value: Mapping[str, Any]) -> None:
    queues = default_queues()
    StepDefinition.objects.bulk_create(
        StepDefinition(
            blueprint=blueprint,
            key=key,
            title=step.title or "",
            type=step.type,
            queue=step.queue or queues[step.type],
            position=position,
            config=value["steps"][key],
        )
        for position, (key, step) in enumerate(document.steps.items())
    )
    EdgeDefinition.objects.bulk_create(
        EdgeDefinition(
            blueprint=blueprint,
            source=edge.source,
            target=edge.target,
            on=edge.on,
            when=edge.when or "",
            routes=list(edge.routes or ()),
            position=position,
        )
        for position, edge in enumerate(document_edges(document))
    )


def _in_authors_order(blueprint_id: int, steps: dict[str, Any]) -> dict[str, Any]:
    """Canonical bytes are sorted; positions follow the order in which the steps were written."""
    written = StepDefinition.objects.filter(blueprint_id=blueprint_id).values_list("key", flat=True)
    ordered = {key: steps[key] for key in written if key in steps}
    return ordered | steps


def default_queues() -> dict[str, str]:
    """The queue of each step type, as its executor says."""
    return {step_type: get_executor(step_type).queue for step_type in _STEP_TYPES}


def installed_site(tenant: str) -> Site:
    """What this installation adds to a tenant's documents."""
    return Site(
        tool_service=_tool_service,
        model_gates=_model_gates,
        routes=engine_settings().queue_routes,
        tenant=tenant,
    )


def _model_gates(name: str) -> tuple[str, ...]:
    """An alias may lead elsewhere tomorrow: what is behind it is looked at with each call."""
    aliases.cache.refresh()
    return () if name in models.aliases() else model_gates(name)


def _tool_service(name: str) -> str:
    return (registry.get(name).service or "") if name in registry else ""


@lru_cache(maxsize=_KEPT)
def compiled(blueprint_id: int) -> CompiledWorkflow:
    """The blueprint, ready to run; cached in the process, as it never changes.

    Raises NotFound for an unknown id, Unreadable when the stored bytes do not fit the digest, or
    are no document to this build. It is looked for once a process: what was compiled is kept.
    """
    row = (
        Blueprint.objects.filter(pk=blueprint_id)
        .values_list("canonical", "pins", "digest", "tenant")
        .first()
    )
    if row is None:
        raise NotFound(f"there is no blueprint {blueprint_id}")
    canonical, pins, expected = bytes(row[0]), row[1], row[2]
    if pinned_digest(canonical, pins) != expected:
        raise Unreadable(f"blueprint {blueprint_id} does not have the digest it is stored by")
    value = orjson.loads(canonical)
    value["steps"] = _in_authors_order(blueprint_id, value["steps"])
    document, problems = parse_document(value)
    if document is None:
        raise Unreadable(f"blueprint {blueprint_id} cannot be read: {problems[0].message}")
    return draft(row[3], document, value, pins)


def draft(
    tenant: str, document: Document, value: Mapping[str, Any], pins: Mapping[str, str]
) -> CompiledWorkflow:
    """A document that is valid, published or not, ready to run for this tenant."""
    return compile_workflow(
        document,
        value,
        queues=default_queues(),
        pins=pins,
        site=installed_site(tenant),
        undoable=_undoable(tenant, document, pins),
    )


def _undoable(tenant: str, document: Document, pins: Mapping[str, str]) -> frozenset[str]:
    """The children, as written in the document, that have something to undo once completed. What a
    workflow that names itself has to undo is what it has beside itself."""
    found = {name for name, pin in pins.items() if pin != SELF and _undoes(tenant, pin)}
    if undoes_something(document, found):
        found |= {name for name, pin in pins.items() if pin == SELF}
    return frozenset(found)


def _undoes(tenant: str, pin: str) -> bool:
    blueprint = Blueprint.objects.filter(tenant=tenant, digest=pin).values_list("pk", flat=True)
    child = blueprint.first()
    if child is None:
        return False
    steps = compiled(child).steps
    return any(step.undoes is not None or step.irreversible for step in steps)
