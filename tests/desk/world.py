"""A tenant with callers: what most tests of the desk and its API begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client

from orchestrator.models import Run
from tests.desk.documents import as_json, document
from workflows_app.models import ApiToken, Tenant
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.publishing import JSON, Published, publish

TENANT = "acme"


def principal(tenant: str = TENANT, **changes: Any) -> Principal:
    return Principal(**{"tenant": tenant, "actor": "user:ann", "scopes": ALL_SCOPES, **changes})


def published(value: dict[str, Any] | None = None, tenant: str = TENANT) -> Published:
    Tenant.ensure(tenant)
    return publish(tenant, as_json(value or document()), JSON, actor="user:author")


class Caller:
    """Somebody with a token; bodies go out and come back as JSON, integers exact."""

    def __init__(
        self,
        tenant: str = TENANT,
        *,
        scopes: Sequence[str] = tuple(ALL_SCOPES),
        roles: Sequence[str] = (),
        actor: str = "service:shop",
    ) -> None:
        self.token, self.secret = ApiToken.objects.issue(
            Tenant.ensure(tenant), name=actor, actor=actor, scopes=scopes, roles=roles
        )
        # What goes wrong in a view is an answer here as it is outside.
        self.client = Client(raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Answered:
        return Answered(self.client.get(path, query, headers=self._headers({})))

    def post(
        self,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        raw: bytes | None = None,
        media_type: str = JSON,
    ) -> Answered:
        headers = self._headers({} if key is None else {"Idempotency-Key": key})
        data = raw if raw is not None else as_json({} if body is None else body)
        return Answered(self.client.post(path, data, content_type=media_type, headers=headers))

    def start(self, name: str = "order_check", *, key: str = "k-1", **body: Any) -> Answered:
        body.setdefault("input", {"order_id": "A-1"})
        return self.post(f"/v1/workflows/{name}", body, key=key)

    def started(self, name: str = "order_check", **more: Any) -> Run:
        answer = self.start(name, **more)
        assert answer.status == 201, answer.body
        return Run.objects.get(pk=answer.body["instance_id"])

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}", **more}


class Answered:
    """A response, read: ``status``, ``body`` (JSON or None), ``headers``."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.media_type = response.headers.get("Content-Type", "").partition(";")[0]
        content = response.content if not response.streaming else b""  # type: ignore[attr-defined]
        self.body: Any = orjson.loads(content) if "json" in self.media_type else None
        self.text = content.decode("utf-8", "replace")

    @property
    def code(self) -> str:
        """The code of a problem; proves that it is one, to the letter."""
        assert self.media_type == "application/problem+json", self.text[:500]
        assert {"type", "title", "status", "detail", "code", "errors"} <= set(self.body)
        assert self.body["status"] == self.status
        assert all(set(e) == {"pointer", "code", "detail"} for e in self.body["errors"])
        return str(self.body["code"])

    @property
    def pointers(self) -> list[str]:
        return [error["pointer"] for error in self.body["errors"]]
