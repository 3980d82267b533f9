"""The API's description (OpenAPI 3.1): what every route has in common is added here."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

from config.problems import MEDIA_TYPE
from workflows_app.permissions import scope_of

PROBLEM: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457. Program against `code`; `errors` has one entry for each fault.",
    "required": ["type", "title", "status", "detail", "code", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
        "problems": {
            "type": "array",
            "description": "Documents only: with severity and line.",
            "items": {"type": "object"},
        },
        "state": {"type": "string", "description": "409: the state that forbids it."},
    },
}

WORDS = {
    400: "The request cannot be read (or lacks a usable Idempotency-Key).",
    401: "No credential, or one that is unknown, expired or revoked.",
    403: "The credential lacks the scope, or it is not yours to decide.",
    404: "There is no such thing in this tenant.",
    409: "The present state forbids it (or the key is in flight: Retry-After).",
    413: "The body is larger than 1 MiB.",
    415: "Not a media type that is read here.",
    422: "Well-formed but refused; `errors` says where and why.",
    503: "The database does not answer; nothing was done.",
}


class ApiSchema(AutoSchema):
    """Adds the problems that a route can answer, and the scope it needs.

    A view names further ones: ``problem_statuses = {"POST": (409,)}``.
    """

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """The operation, with its problems."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        scope = scope_of(self.view, self.method)
        if scope is not None:
            text = operation.get("description", "")
            operation["description"] = f"{text}\n\nScope: `{scope}`".strip()
        for status in sorted(self._problem_statuses(operation, public=scope is None)):
            operation["responses"][str(status)] = self._problem(status)
        return operation

    def _problem_statuses(self, operation: dict[str, Any], *, public: bool) -> set[int]:
        if public:
            return set()
        statuses = {401, 403, 503}
        if "{" in self.path:
            statuses.add(404)
        if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
            statuses.add(422)
        if self.method == "POST":
            statuses |= {400, 413, 415, 422}
        declared = getattr(self.view, "problem_statuses", {})
        return statuses | set(declared.get(self.method, ()))

    def _problem(self, status: int) -> dict[str, Any]:
        component = ResolvedComponent(  # type: ignore[no-untyped-call]
            name="Problem", type=ResolvedComponent.SCHEMA, object="Problem", schema=PROBLEM
        )
        self.registry.register_on_missing(component)
        return {"description": WORDS[status], "content": {MEDIA_TYPE: {"schema": component.ref}}}


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the API's page asks for a token."""

    target_class = "workflows_app.authentication.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:  # noqa: ARG002
        """The scheme of RFC 6750."""
        return {"type": "http", "scheme": "bearer", "description": "`manage.py token create`"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The console's login, for staff."""

    target_class = "workflows_app.authentication.StaffSessionAuthentication"
    name = "console"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:  # noqa: ARG002
        """The session cookie."""
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
