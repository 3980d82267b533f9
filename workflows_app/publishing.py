"""From a text to a published version: read, check everything, pin the children, give a number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Max

from orchestrator import engine
from orchestrator.core.definition import (
    Document,
    SubWorkflowStep,
    WorkflowRef,
    canonical_json,
)
from orchestrator.core.problems import Problem, pointer_to
from orchestrator.core.source import Loaded, SourceError, load_json, load_yaml
from orchestrator.core.validation import check_document
from orchestrator.models import Blueprint
from workflows_app.catalogue import TenantCatalogue
from workflows_app.errors import DocumentRefused
from workflows_app.models import Workflow, WorkflowVersion

JSON = "application/json"
YAML = "application/yaml"
SELF = "self"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """``created`` False: the same document with the same pins had been published before."""

    version: WorkflowVersion
    created: bool
    warnings: list[Problem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document that could be published: what was read, and the digests of its children."""

    document: Document
    value: dict[str, Any]
    pins: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What a text turned out to be. ``document`` None: its shape already is wrong."""

    loaded: Loaded | None = None
    document: Document | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether it could be published; warnings do not hinder."""
        return not any(problem.severity == "error" for problem in self.problems)


def load(source: bytes, media_type: str) -> Loaded:
    """The plain value of a document's text; SourceError when it cannot be read."""
    return load_yaml(source) if media_type == YAML else load_json(source)


def examine(tenant: str, source: bytes, media_type: str) -> Examined:
    """Everything that is wrong with a text, at once; stores nothing and raises nothing."""
    try:
        loaded = load(source, media_type)
    except SourceError as error:
        return Examined(problems=list(error.problems))
    return _check(tenant, loaded)


def _check(tenant: str, loaded: Loaded) -> Examined:
    catalogue = TenantCatalogue(tenant)
    document, problems = check_document(loaded.value, catalogue, line_of=loaded.line)
    if document is not None:
        known = {(each.pointer, each.code) for each in problems}
        _, found = _pins(tenant, document, loaded)
        problems += [each for each in found if (each.pointer, each.code) not in known]
    return Examined(loaded=loaded, document=document, problems=problems)


def draft(tenant: str, source: bytes, media_type: str) -> Draft:
    """A document, checked as for publishing; nothing is stored. Raises as ``publish``."""
    examined = _check(tenant, load(source, media_type))
    document, loaded = examined.document, examined.loaded
    if document is None or loaded is None or not examined.valid:
        raise DocumentRefused(examined.problems)
    pins, _ = _pins(tenant, document, loaded)
    return Draft(document=document, value=loaded.value, pins=pins)


def publish(tenant: str, source: bytes, media_type: str, *, actor: str) -> Published:
    """Publish a document under its name and make it the default of new runs.

    One transaction under a lock on the workflow's row. Raises SourceError (cannot be read) and
    ``DocumentRefused`` (has errors; all of them); then nothing was stored.
    """
    examined = _check(tenant, load(source, media_type))
    document, loaded = examined.document, examined.loaded
    if document is None or loaded is None or not examined.valid:
        raise DocumentRefused(examined.problems)
    with engine.Unit("publish"):
        workflow = _locked(tenant, document)
        pins, problems = _pins(tenant, document, loaded)
        if problems:  # a child was retired since the check above
            raise DocumentRefused(problems)
        blueprint = engine.register_blueprint(
            tenant=tenant,
            document=document,
            value=loaded.value,
            canonical=canonical_json(loaded.value),
            pins=pins,
            version=_next_number(workflow),
        )
        version = workflow.versions.filter(blueprint=blueprint).first()
        created = version is None
        if version is None:
            version = _next_version(workflow, blueprint, source, media_type, actor)
        _make_default(version)
    return Published(version=version, created=created, warnings=examined.problems)


def _locked(tenant: str, document: Document) -> Workflow:
    """The workflow's row under lock, with the document's title and description."""
    Workflow.objects.get_or_create(tenant_id=tenant, name=document.name)
    workflow = Workflow.objects.select_for_update().get(tenant_id=tenant, name=document.name)
    words = {"title": document.title or "", "description": document.description or ""}
    Workflow.objects.filter(pk=workflow.pk).update(**words)
    workflow.title, workflow.description = words["title"], words["description"]
    return workflow


def _next_version(
    workflow: Workflow, blueprint: Blueprint, source: bytes, media_type: str, actor: str
) -> WorkflowVersion:
    return WorkflowVersion.objects.create(
        workflow=workflow,
        number=_next_number(workflow),
        blueprint=blueprint,
        source=source.decode("utf-8-sig"),
        media_type=media_type,
        published_by=actor,
    )


def _next_number(workflow: Workflow) -> int:
    last: int | None = workflow.versions.aggregate(last=Max("number"))["last"]
    return (last or 0) + 1


def _make_default(version: WorkflowVersion) -> None:
    """From now on a start without ``version`` runs this one; call under the workflow's lock."""
    others = WorkflowVersion.objects.filter(workflow=version.workflow_id, is_default=True)
    others.exclude(pk=version.pk).update(is_default=False)
    published = WorkflowVersion.State.PUBLISHED
    WorkflowVersion.objects.filter(pk=version.pk).update(is_default=True, state=published)
    version.is_default, version.state = True, published


def retire(version: WorkflowVersion) -> None:
    """No new runs of this version; those under way go on. The newest one left becomes the default.

    One transaction under the workflow's lock; safe to repeat.
    """
    with engine.Unit("retire"):
        workflow = Workflow.objects.select_for_update().get(pk=version.workflow_id)
        retired = WorkflowVersion.State.RETIRED
        mine = WorkflowVersion.objects.filter(pk=version.pk)
        mine.update(state=retired, is_default=False)
        left = workflow.versions.filter(state=WorkflowVersion.State.PUBLISHED)
        newest = left.order_by("-number").first()
        if newest is not None and not left.filter(is_default=True).exists():
            _make_default(newest)


# -- children --------------------------------------------------------------------------------------


def _pins(tenant: str, document: Document, loaded: Loaded) -> tuple[dict[str, str], list[Problem]]:
    """Each child as written, with the digest it means today (``self``: this very document)."""
    pins: dict[str, str] = {}
    problems: list[Problem] = []
    for key, step in document.steps.items():
        if not isinstance(step, SubWorkflowStep) or step.workflow in pins:
            continue
        if step.workflow == document.name:
            pins[step.workflow] = SELF
            continue
        pointer = pointer_to("steps", key, "workflow")
        child = _child(tenant, step.child)
        if child is None:
            message = f'no published workflow "{step.workflow}": publish it first.'
            found = Problem("error", _missing(step.child), pointer, loaded.line(pointer), message)
            problems.append(found)
            continue
        pins[step.workflow] = child.digest
        if way := _way_back(document.name, child):
            message = (
                f"{' → '.join([document.name, *way])} calls in a circle: only a workflow that "
                "calls itself may; call it from one side."
            )
            line = loaded.line(pointer)
            problems.append(Problem("error", "mutual_recursion", pointer, line, message))
    return pins, problems


def _missing(child: WorkflowRef) -> str:
    return "unknown_workflow" if child.version is None else "unknown_version"


def _child(tenant: str, ref: WorkflowRef) -> Blueprint | None:
    versions = WorkflowVersion.objects.filter(
        workflow__tenant=tenant, workflow__name=ref.name, state=WorkflowVersion.State.PUBLISHED
    )
    wanted = {"is_default": True} if ref.version is None else {"number": ref.version}
    version = versions.filter(**wanted).select_related("blueprint").first()
    return None if version is None else version.blueprint


def _way_back(name: str, child: Blueprint) -> list[str]:
    """The names from ``child`` down to a workflow called ``name``; empty when none leads there.

    An earlier version of the workflow itself (``name@2``) is no circle, and ends the search.
    """
    if child.name == name:
        return []
    ways = {child.digest: [child.name]}
    level = [child]
    while level:
        deeper = {
            digest: [*ways[parent.digest]]
            for parent in level
            for digest in parent.pins.values()
            if digest != SELF and digest not in ways
        }
        level = list(_blueprints(child.tenant, deeper))
        for found in level:
            ways[found.digest] = [*deeper[found.digest], found.name]
            if found.name == name:
                return ways[found.digest]
    return []


def _blueprints(tenant: str, digests: Iterable[str]) -> Iterable[Blueprint]:
    light = ("id", "tenant", "name", "digest", "pins")
    return Blueprint.objects.filter(tenant=tenant, digest__in=list(digests)).only(*light)
