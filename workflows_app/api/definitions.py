"""Checking, publishing and reading workflow documents."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator.core.document_schema import document_schema
from workflows_app import publishing, queries
from workflows_app.api import shapes
from workflows_app.api.answers import (
    DefinitionAnswer,
    DefinitionPage,
    PublishedAnswer,
    ValidationAnswer,
    VersionAnswer,
)
from workflows_app.api.base import CURSOR, LIMIT, caller, describe, page
from workflows_app.models import Workflow
from workflows_app.principal import Scope

MEDIA_TYPES = {
    "application/json": publishing.JSON,
    "application/yaml": publishing.YAML,
    "application/x-yaml": publishing.YAML,
    "text/yaml": publishing.YAML,
}
DOCUMENT: dict[tuple[str, str] | str, Any] = {
    publishing.JSON: OpenApiTypes.OBJECT,
    publishing.YAML: OpenApiTypes.STR,
}


def _document(request: Request) -> tuple[bytes, str]:
    """The text of the body and its media type; 415 for any other."""
    given = (request.content_type or "").partition(";")[0].strip().lower()
    media_type = MEDIA_TYPES.get(given)
    if media_type is None:
        raise UnsupportedMediaType(
            given, f"Send the document as {' or '.join((publishing.JSON, publishing.YAML))}."
        )
    return request.body, media_type


class DefinitionsView(APIView):
    """The workflows of a tenant."""

    required_scope: ClassVar = {"GET": Scope.DEF_READ, "POST": Scope.DEF_PUBLISH}
    page_by = "name"

    @describe(
        "listWorkflows",
        "List workflows",
        answers={200: DefinitionPage},
        parameters=[CURSOR, LIMIT],
        tag="Definitions",
    )
    def get(self, request: Request) -> Response:
        """Workflows by name, each with the version that a start runs."""
        found = queries.definitions(caller(request).tenant)
        return page(self, request, found, _lines)

    @extend_schema(
        operation_id="publishWorkflow",
        summary="Publish a workflow",
        request=DOCUMENT,
        responses={200: PublishedAnswer, 201: PublishedAnswer},
        tags=["Definitions"],
    )
    def post(self, request: Request) -> Response:
        """Check everything, freeze the document and make it what new runs use.

        201 with a new version; 200 when the same document (with the same children) had been
        published before. 422 lists all errors at once, with pointer and line.
        """
        principal = caller(request)
        source, media_type = _document(request)
        published = publishing.publish(principal.tenant, source, media_type, actor=principal.actor)
        version = published.version
        body = {
            "name": version.workflow.name,
            "version": version.number,
            "digest": version.blueprint.digest,
            "problems": [problem.as_json() for problem in published.warnings],
        }
        location = f"/v1/definitions/{version.workflow.name}/versions/{version.number}"
        status = 201 if published.created else 200
        return Response(body, status=status, headers={"Location": location})


def _lines(rows: list[Workflow]) -> list[Any]:
    return [shapes.definition_line(row, next(iter(queries.defaults(row)), None)) for row in rows]


class ValidateView(APIView):
    """What publishing would say."""

    required_scope = Scope.DEF_READ

    @extend_schema(
        operation_id="validateWorkflow",
        summary="Check a workflow",
        request=DOCUMENT,
        responses={200: ValidationAnswer},
        tags=["Definitions"],
    )
    def post(self, request: Request) -> Response:
        """All problems of the document at once, those of its text included; stores nothing."""
        source, media_type = _document(request)
        examined = publishing.examine(caller(request).tenant, source, media_type)
        problems = [problem.as_json() for problem in examined.problems]
        return Response({"valid": examined.valid, "problems": problems})


class DefinitionView(APIView):
    """One workflow."""

    required_scope = Scope.DEF_READ

    @describe("showWorkflow", "Show a workflow", answers={200: DefinitionAnswer}, tag="Definitions")
    def get(self, request: Request, name: str) -> Response:
        """Its versions, newest first, and the document that a start runs."""
        workflow = queries.find_definition(caller(request).tenant, name)
        versions = list(queries.versions(workflow))
        default = next((each for each in versions if each.is_default), None)
        body = {
            **shapes.definition_line(workflow, default),
            "document": None if default is None else default.blueprint.document,
            "versions": [shapes.version_line(each) for each in versions],
        }
        return Response(body)


class VersionView(APIView):
    """One version of a workflow."""

    required_scope = Scope.DEF_READ

    @describe("showVersion", "Show a version", answers={200: VersionAnswer}, tag="Definitions")
    def get(self, request: Request, name: str, number: int) -> Response:
        """The frozen document, and the text as it was published."""
        workflow = queries.find_definition(caller(request).tenant, name)
        return Response(shapes.version_answer(queries.find_version(workflow, number)))


class SchemaView(APIView):
    """The JSON Schema of workflow documents, for editors."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="documentSchema",
        summary="JSON Schema of workflow documents",
        responses={200: OpenApiTypes.OBJECT},
        tags=["Definitions"],
        auth=[],
    )
    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """JSON Schema 2020-12, made from the model that reads the documents."""
        return Response(document_schema())
