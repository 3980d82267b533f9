"""A person decides: the record, the request's end and the engine's wake-up in one transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, assert_never
from uuid import UUID

import orjson
from django.db import DEFAULT_DB_ALIAS
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from approvals_app.models import Request
from approvals_app.policy import (
    Choice,
    Counted,
    Gate,
    NotYours,
    Outcome,
    Person,
    Repeated,
    RequestState,
    TooLate,
    Vote,
    rule,
)
from approvals_app.requests import database_now
from orchestrator import engine
from orchestrator.core.errors import (
    InvalidRequest,
    NotFound,
    OrchestratorError,
    StateConflict,
)
from orchestrator.core.problems import pointer_to
from orchestrator.core.schemas import compile_schema
from orchestrator.models import statements

MAX_NOTES = 10_000
_WORDS = {
    "extra_forbidden": "is not known here: remove it.",
    "missing": "is missing: add it.",
    "model_type": "must be an object: {…}.",
    "string_type": "must be text.",
}


class PrincipalLike(Protocol):
    """Whoever the authentication found."""

    @property
    def tenant(self) -> str:
        """The tenant that the credential belongs to."""

    @property
    def actor(self) -> str:
        """The name that records keep."""

    @property
    def roles(self) -> Collection[str]:
        """The roles held there."""


class NotAnAssignee(OrchestratorError):
    """The gate is somebody else's to decide."""

    code = "not_an_assignee"


def _without_nul(value: Any) -> Any:
    if _has_nul(value):
        raise ValueError("the text contains a NUL character, which cannot be stored: remove it.")
    return value


class DecisionBody(BaseModel):
    """What a person sends: ``{"decision": "approve" | "reject", "notes", "data"}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Choice
    notes: Annotated[str, Field(max_length=MAX_NOTES), BeforeValidator(_without_nul)] = ""
    data: Annotated[JsonValue, BeforeValidator(_without_nul)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """``applied``: this call recorded the answer (False: the same was said before).

    ``concluded``: the gate is decided now, and its step goes on.
    """

    request: Request
    applied: bool
    concluded: bool


def parse_body(body: Any) -> DecisionBody:
    """The checked body; ``InvalidRequest`` (``invalid_decision``) with a pointer to each fault."""
    try:
        return DecisionBody.model_validate(body)
    except ValidationError as error:
        problems = [
            {
                "pointer": pointer_to(*each["loc"]),
                "code": each["type"],
                "detail": _WORDS.get(each["type"], each["msg"].removeprefix("Value error, ")),
            }
            for each in error.errors()
        ]
        raise InvalidRequest(
            'A decision looks like {"decision": "approve", "notes": "…", "data": {…}}.',
            code="invalid_decision",
            problems=problems,
        ) from error


def person_of(principal: PrincipalLike) -> Person:
    """The caller of the API as the policy knows people."""
    return Person(actor=principal.actor, roles=frozenset(principal.roles))


def decide(request_id: UUID, body: DecisionBody, *, tenant: str, person: Person) -> Decided:
    """Record what ``person`` says and, if that settles it, end the gate. One transaction.

    Safe to repeat: the same answer of the same person changes nothing. Of many at once the one
    that gets the row first counts. ``NotFound`` in another tenant, ``NotAnAssignee``,
    ``StateConflict`` with the state (decided otherwise, expired, cancelled), ``InvalidRequest``
    when ``data`` breaks the gate's form.
    """
    with engine.Unit("decide"):
        request, gate = _locked(request_id, tenant)
        ruling = rule(gate, person, body.decision)
        match ruling:
            case Repeated():
                return Decided(request=request, applied=False, concluded=_is_decided(request))
            case NotYours(why=why):
                raise NotAnAssignee(why)
            case TooLate(code=code, why=why):
                raise StateConflict(why, state=request.state, code=code)
            case Counted(outcome=outcome):
                _check_form(request, body)
                _answer(request, outcome, body, person)
                if outcome is not None:
                    _tell_engine(request, outcome, body, person)
            case _:
                assert_never(ruling)
    return Decided(request=request, applied=True, concluded=_is_decided(request))


def decide_by_step(
    run_id: UUID, key: str, scope: str, payload: Any, principal: PrincipalLike
) -> Decided:
    """Decide the gate ``key`` of a run by a signal named like it; as ``decide`` otherwise.

    ``StateConflict`` (``gate_not_open``) while the gate has not asked anybody yet: who may
    decide is known only then.
    """
    body = parse_body(payload)
    rounds = Request.objects.of(principal.tenant).of_step(run_id, key=key, scope=scope)
    latest = rounds.order_by("-attempt").values_list("pk", flat=True).first()
    if latest is None:
        raise StateConflict(
            f"Step {key}{scope} waits for no decision yet.", state="not_open", code="gate_not_open"
        )
    return decide(latest, body, tenant=principal.tenant, person=person_of(principal))


_FIELDS = tuple(field.attname for field in Request._meta.concrete_fields)  # noqa: SLF001 - Django documents it
_JSON = tuple(_FIELDS.index(name) for name in ("form", "upstream"))
_LOCK = (
    f"SELECT {', '.join(f'(x.request).{name}' for name in _FIELDS)}, x.asked, x.said"  # noqa: S608 - names of columns
    " FROM approvals_lock(%s, %s) x"
)


def _locked(request_id: UUID, tenant: str) -> tuple[Request, Gate]:
    row = statements.fetch_prepared(_LOCK, [request_id, tenant])
    if row is None:
        raise NotFound(f"There is no approval {request_id}.")
    *values, asked, said = row
    for place in _JSON:
        values[place] = None if values[place] is None else orjson.loads(values[place])
    request = Request.from_db(DEFAULT_DB_ALIAS, _FIELDS, values)
    gate = Gate(
        state=RequestState(request.state),
        assignees=tuple(asked),
        quorum=request.quorum,
        four_eyes=request.four_eyes,
        starter=request.starter,
        votes=tuple(
            Vote(by=by, choice=Choice(choice))
            for by, choice in zip(said[::2], said[1::2], strict=True)
        ),
    )
    return request, gate


def _check_form(request: Request, body: DecisionBody) -> None:
    """An approval fills the form; a rejection may leave it empty."""
    if request.form is None or (body.decision is Choice.REJECT and body.data is None):
        return
    data = {} if body.data is None else body.data
    problems = [
        {"pointer": f"/data{each.pointer}", "code": "form_invalid", "detail": each.message}
        for each in compile_schema(request.form).check(data)
    ]
    if problems:
        raise InvalidRequest(
            "data does not fit the form of this approval.", code="form_invalid", problems=problems
        )


_ANSWER = "SELECT approvals_answer(%s, %s, %s, %s, %s::jsonb, %s)"


def _answer(request: Request, outcome: Outcome | None, body: DecisionBody, person: Person) -> None:
    """Keep what the person said and, if that settles it, close the request."""
    data = None if body.data is None else statements.dumps(body.data)
    said = [request.pk, person.actor, str(body.decision), body.notes, data, str(outcome or "")]
    row = statements.fetch_prepared(_ANSWER, said)
    if outcome is not None and row is not None:
        request.state, request.outcome = RequestState.DECIDED, outcome
        request.closed_by, request.closed_at = person.actor, row[0]


def _tell_engine(request: Request, outcome: Outcome, body: DecisionBody, person: Person) -> None:
    """The step goes on: own row first, then the run's."""
    delivered = engine.deliver_decision(
        request.run_id,
        key=request.key,
        scope=request.scope,
        attempt=request.attempt,
        payload={
            "decision": str(outcome),
            "by": person.actor,
            "notes": body.notes,
            "data": body.data,
        },
        actor=person.actor,
    )
    if not delivered:
        _refuse_late(request)


def _refuse_late(request: Request) -> None:
    """The gate ended first and its message is on its way here: say so, and keep nothing."""
    state = RequestState.CANCELLED
    if request.due_at <= database_now():
        state = RequestState.EXPIRED
    raise StateConflict(f"This approval is {state}.", state=str(state), code=f"approval_{state}")


def _is_decided(request: Request) -> bool:
    return request.state == RequestState.DECIDED


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(each) for key, each in value.items())
    return isinstance(value, list) and any(_has_nul(each) for each in value)
