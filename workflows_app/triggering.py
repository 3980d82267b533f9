"""From a caller's wish to a run: the idempotent start of FORMAT section 2."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from orchestrator import engine
from orchestrator.core.definition import canonical_json
from orchestrator.core.errors import InvalidRequest, NotFound
from orchestrator.models import Run
from workflows_app.errors import BadKey, KeyInFlight
from workflows_app.models import StartKey, WorkflowVersion, start_rows
from workflows_app.models.workflow import Workflow
from workflows_app.principal import Principal
from workflows_app.requests import StartBody

LONGEST_KEY = 255
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """``answer`` is the body of FORMAT section 2; ``replayed``: the key had started it before."""

    answer: dict[str, Any]
    replayed: bool

    @property
    def run_id(self) -> UUID:
        """The run."""
        return UUID(self.answer["instance_id"])


def read_key(header: str | None) -> str:
    """The Idempotency-Key: 1 to 255 printable characters, bare or in quotes; else ``BadKey``."""
    if not header:
        raise BadKey(
            "The header Idempotency-Key is missing: send a value that is new for each thing "
            "that you ask for, such as a UUID, and the same one again when you repeat the call."
        )
    key = _as_text(header)
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = re.sub(r"\\([\\\"])", r"\1", key[1:-1])
    if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
        raise BadKey(f"An Idempotency-Key has 1 to {LONGEST_KEY} printable characters.")
    return key


def _as_text(header: str) -> str:
    """Headers arrive as Latin-1; a UTF-8 one is read as what it is."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return header


def read_traceparent(header: str | None) -> str:
    """A W3C traceparent as it is, anything else as none: tracing never refuses a call."""
    return header if header and _TRACEPARENT.fullmatch(header) else ""


def start(
    principal: Principal,
    name: str,
    body: Any,
    *,
    key: str,
    traceparent: str = "",
    trigger: str = "api",
) -> Started:
    """Start a run of ``name`` once for this key. One transaction: run and key, or neither.

    The same key and body again find the first start. Raises NotFound (no such workflow),
    ``KeyInFlight``, InvalidRequest (body, key reused, unknown version, input breaks the schema);
    none of these uses up the key. ``trigger`` is the type that the run shows.
    """
    fingerprint = hashlib.sha256(canonical_json(body)).hexdigest()
    place = (principal.tenant, name, key)
    found = start_rows.look(*place, number=_number(body))
    if found.earlier is not None:
        return _again(found.earlier, fingerprint, place)
    wanted = StartBody.read(body)
    version = found.version or _unfound(principal.tenant, name, wanted.version)
    newborn = _prepare(principal, name, wanted, version, trigger=trigger, traceparent=traceparent)
    answer = _answer(newborn, name, version)
    try:
        if newborn.stands_alone:
            taking = start_rows.taking(*place, fingerprint, newborn.run.id, answer)
            with start_rows.refusals(key):
                engine.start_prepared(newborn, beside=[taking])
        else:
            _start_locked(newborn, place, fingerprint, answer)
    except start_rows.KeyUsed:
        earlier = start_rows.look(*place, number=None).earlier
        if earlier is None:  # and forgotten meanwhile
            raise KeyInFlight(key) from None
        return _again(earlier, fingerprint, place)
    return Started(answer=answer, replayed=False)


def _start_locked(
    newborn: engine.Newborn, place: tuple[str, str, str], fingerprint: str, answer: dict[str, Any]
) -> None:
    """Run and key in a transaction: the caller's, or one for a run whose begin takes several
    statements. The state in ``answer`` is what the run has come to by then."""
    with engine.Unit("start_key"):
        start_rows.take_lock(*place)
        if start_rows.look(*place, number=None).earlier is not None:
            raise start_rows.KeyUsed
        run_id = engine.start_prepared(newborn)
        answer["state"] = Run.objects.values_list("state", flat=True).get(pk=run_id)
        tenant, name, key = place
        StartKey.objects.create(
            tenant=tenant,
            workflow=name,
            key=key,
            fingerprint=fingerprint,
            run_id=run_id,
            answer=answer,
        )


def _again(earlier: start_rows.Earlier, fingerprint: str, place: tuple[str, str, str]) -> Started:
    if earlier.fingerprint != fingerprint:
        raise InvalidRequest(
            f"The key {place[2]!r} has started {earlier.run_id} with another body: "
            "use a new key for a new start.",
            code="idempotency_key_reused",
        )
    return Started(answer=earlier.answer, replayed=True)


def _number(body: Any) -> int | None:
    """The version that a body seems to ask for, before it is checked; None: the default."""
    number = body.get("version") if isinstance(body, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 < number <= _MOST else None


_MOST = 2_147_483_647


def _unfound(tenant: str, name: str, number: int | None) -> start_rows.Version:
    """Why there is no such version to start; or the one that was published this moment."""
    version = live_version(tenant, name, number)
    return start_rows.Version(version.number, version.blueprint_id)


def _prepare(
    principal: Principal,
    name: str,
    body: StartBody,
    version: start_rows.Version,
    *,
    trigger: str,
    traceparent: str,
) -> engine.Newborn:
    if body.workflow_type not in (None, name):
        raise _bad_field("workflow_type", f"must be {name!r}, as in the address, or left out.")
    return engine.prepare_start(
        tenant=principal.tenant,
        blueprint=version.blueprint_id,
        workflow=name,
        version=version.number,
        input=body.payload,
        actor=principal.actor,
        correlation_id=body.correlation_id,
        context=body.context,
        trigger={"type": trigger},
        traceparent=traceparent,
    )


def _answer(newborn: engine.Newborn, name: str, version: start_rows.Version) -> dict[str, Any]:
    run_id = newborn.run.id
    return {
        "instance_id": str(run_id),
        "workflow": name,
        "version": version.number,
        "state": newborn.first_state,
        "status_url": f"/v1/workflows/{run_id}",
    }


def live_version(tenant: str, name: str, number: int | None) -> WorkflowVersion:
    """The version that a start runs: ``number``, or the default.

    NotFound without such a workflow (or without any live version of it), InvalidRequest
    (``unknown_version``) for a number that is not published. The document is not loaded.
    """
    versions = WorkflowVersion.objects.filter(workflow__tenant=tenant, workflow__name=name)
    chosen = versions.filter(is_default=True) if number is None else versions.filter(number=number)
    found = (
        chosen.filter(state=WorkflowVersion.State.PUBLISHED)
        .select_related("blueprint")
        .defer("source", "blueprint__document", "blueprint__canonical")
        .first()
    )
    if found is not None:
        return found
    if number is None or not Workflow.objects.filter(tenant=tenant, name=name).exists():
        raise NotFound(f"There is no workflow {name!r} to start: publish it first.")
    raise InvalidRequest(
        f"Workflow {name!r} has no published version {number}.",
        code="unknown_version",
        problems=[_field("version", "unknown_version", f"version {number} is not published.")],
    )


def _bad_field(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        f"The field {name} {detail}",
        code="invalid_body",
        problems=[_field(name, "invalid_value", detail)],
    )


def _field(name: str, code: str, detail: str) -> dict[str, str]:
    return {"pointer": f"/{name}", "code": code, "detail": detail}
