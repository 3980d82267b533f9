"""An operator's repair of one run, and of many by their dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from django.db.models import QuerySet
from pydantic import Field, StringConstraints, model_validator

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest
from orchestrator.engine import RepairReport
from orchestrator.models import DeadLetter
from workflows_app.principal import Principal
from workflows_app.requests import Body, Short

MOST_AT_ONCE = 100
_BIGGEST = 2**63 - 1

Why = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=2000),
    Field(description="It stands in the history, and is kept."),
]
Count = Annotated[int, Field(ge=0, le=_BIGGEST)]
ActionWord = Literal["retry_step", "resume", "compensate_step", "skip_step", "settle_effect"]

_TAKES: dict[str, frozenset[str]] = {
    "retry_step": frozenset({"scope"}),
    "resume": frozenset({"from_sequence"}),
    "skip_step": frozenset(),
    "settle_effect": frozenset({"scope", "effect_key", "outcome", "external_ref", "output"}),
    "compensate_step": frozenset({"scope", "with_dependents"}),
}
_OF_ACTIONS = frozenset[str]().union(*_TAKES.values())


class RepairBody(Body):
    """What ``POST /v1/workflows/{id}/repair`` takes."""

    action: ActionWord
    step: Short | None = None
    scope: Annotated[
        str | None,
        Field(pattern=r"^(\[[0-9]{1,9}\])?$", description="`[3]`: that item of its for_each."),
    ] = None
    reason: Why
    expected_version: Annotated[
        Count | None, Field(description="`state_version` as you saw it; 409 when it moved on.")
    ] = None
    preview: Annotated[bool, Field(description="Say what would happen, and do nothing.")] = False
    from_sequence: Annotated[
        int | None,
        Field(ge=1, le=_BIGGEST, description="`resume`: go on from this line of the history."),
    ] = None
    effect_key: Annotated[
        str | None, Field(min_length=1, max_length=1000, description="`settle_effect`: which one.")
    ] = None
    outcome: Annotated[
        Literal["applied", "not_applied"] | None, Field(description="`settle_effect`: found out.")
    ] = None
    external_ref: Annotated[
        str | None, Field(max_length=1000, description="`settle_effect`: the provider's reference.")
    ] = None
    with_dependents: Annotated[
        bool,
        Field(description="`compensate_step`: with what was done behind it, in reverse order."),
    ] = False
    output: Annotated[Any, Field(description="`settle_effect`: what the step answers.")] = None

    @classmethod
    def read(cls, value: Any) -> Self:
        """As every body; a field that the action would not look at is refused, not ignored."""
        body = super().read(value)
        takes = _TAKES[body.action]
        if body.outcome == "not_applied":
            takes = takes - {"external_ref", "output"}
        given = {name: getattr(body, name) for name in sorted(body.model_fields_set & _OF_ACTIONS)}
        given = {name: each for name, each in given.items() if each not in (None, "", False)}
        strange = [name for name in given if name not in takes]
        if strange:
            words = f"{body.action} does not take it"
            problems = [
                {"pointer": f"/{name}", "code": "field_not_taken", "detail": f"{words}: remove it."}
                for name in strange
            ]
            raise InvalidRequest(
                f"{', '.join(strange)}: {words}.", code="invalid_body", problems=problems
            )
        return body

    @property
    def details(self) -> dict[str, Any]:
        """What only some actions take."""
        names = ("from_sequence", "effect_key", "outcome", "external_ref", "output")
        found = {name: getattr(self, name) for name in names}
        if self.with_dependents:
            found["with_dependents"] = True
        return {name: value for name, value in found.items() if value is not None}


def repair(principal: Principal, run_id: UUID, body: RepairBody, *, token: str) -> RepairReport:
    """Do it, or say what it would do; what the engine raises is the answer."""
    return engine.repair_run(
        run_id,
        action=body.action,
        step=body.step or "",
        scope=body.scope or "",
        reason=body.reason,
        actor=principal.actor,
        role=roles_of(principal),
        token=token,
        expected_version=body.expected_version,
        preview=body.preview,
        details=body.details,
    )


def roles_of(principal: Principal) -> str:
    """The caller's roles in one line, for the audit."""
    return ", ".join(sorted(principal.roles))


# -- dead letters ----------------------------------------------------------------------------------


class LetterFilter(Body):
    """Which dead letters; what is not given does not narrow."""

    workflow: Short | None = None
    service: Short | None = None
    region: Short | None = None
    reason: Short | None = None
    run: UUID | None = Field(default=None, strict=False)


class RetryBody(Body):
    """What ``POST /v1/dead-letters/retry`` takes: either ``ids`` or ``filter``."""

    ids: Annotated[
        tuple[Annotated[int, Field(ge=1, le=_BIGGEST)], ...] | None,
        Field(strict=False, min_length=1, max_length=MOST_AT_ONCE),
    ] = None
    filter: LetterFilter | None = None
    after: Annotated[
        int | None, Field(ge=0, le=_BIGGEST, description="`next` of the call before.")
    ] = None
    reason: Why
    dry_run: Annotated[bool, Field(description="Only count; nothing is retried.")] = False

    @model_validator(mode="after")
    def _one_of_both(self) -> RetryBody:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("send either ids or filter.")
        return self


def letters(tenant: str, wanted: LetterFilter, *, state: str = "open") -> QuerySet[DeadLetter]:
    """The tenant's dead letters that fit: ``open``, ``retried`` or ``settled`` ones, or ``all``."""
    given = wanted.model_dump(exclude_none=True)
    found = DeadLetter.objects.filter(tenant=tenant, **given)
    match state:
        case "open":
            found = engine.open_letters(found)
        case "retried":
            found = found.filter(retried_at__isnull=False)
        case "settled":
            found = found.filter(settled_at__isnull=False)
        case "all":
            pass
        case _:
            detail = "write open, retried, settled or all."
            raise InvalidRequest(
                f"The query parameter state cannot be used: {detail}",
                code="invalid_query",
                problems=[{"pointer": "/state", "code": "invalid_query", "detail": detail}],
            )
    return found.select_related("step")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """``count`` letters fit; ``results`` tells of those that were handled now, oldest first.
    ``next``: the last of these, where there are more behind it."""

    count: int
    results: Sequence[engine.Retried]
    next: int | None = None


def retry_letters(principal: Principal, body: RetryBody, *, token: str) -> BulkResult:
    """Retry the steps of many dead letters, oldest first, at most ``MOST_AT_ONCE`` in one call.

    Each is a repair and a transaction of its own. A refused one stays open and the others go on.
    """
    found = letters(principal.tenant, body.filter or LetterFilter())
    if body.ids is not None:
        found = found.filter(pk__in=body.ids)
    if body.after is not None:  # refused ones stay open: without it they would be met for ever
        found = found.filter(pk__gt=body.after)
    if body.dry_run:
        return BulkResult(count=found.count(), results=())
    oldest = found.select_related("step", "run").order_by("pk")
    light = oldest.only("run_id", "step__key", "step__scope", "run__version")
    count, chosen = found.count(), list(light[:MOST_AT_ONCE])
    results = [
        engine.retry_letter(
            letter,
            reason=body.reason,
            actor=principal.actor,
            role=roles_of(principal),
            token=f"{token}#{letter.pk}",
            expected_version=letter.run.version,
        )
        for letter in chosen
    ]
    last = chosen[-1].pk if count > len(chosen) else None
    return BulkResult(count=count, results=results, next=last)


class SettleBody(Body):
    """What ``POST /v1/dead-letters/{id}/settle`` takes."""

    reason: Why


def settle_letter(principal: Principal, letter_id: int, body: SettleBody, *, token: str) -> bool:
    """Close a dead letter that was settled by hand; False: it had been, with the same token."""
    return engine.settle_letter(
        letter_id,
        tenant=principal.tenant,
        reason=body.reason,
        actor=principal.actor,
        role=roles_of(principal),
        token=token,
    )
