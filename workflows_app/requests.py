"""The bodies that callers send, checked once at the edge: closed objects, no loose types."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from orchestrator.core.errors import InvalidRequest
from orchestrator.core.problems import pointer_to

_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"

Short = Annotated[str, Field(min_length=1, max_length=255, pattern=_PRINTABLE)]
Reason = Annotated[str, Field(max_length=2000)]

_WORDS = {
    "extra_forbidden": "is not known here; see the API's description for the fields.",
    "missing": "is missing: add it.",
    "model_type": "must be an object: {…}.",
    "string_type": "must be text.",
    "int_type": "must be a whole number, without quotes.",
}


class Body(BaseModel):
    """A request body. Unknown fields are refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title=None)

    @classmethod
    def read(cls, value: Any) -> Self:
        """The checked body; InvalidRequest (``invalid_body``) with a pointer for every fault."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            problems = [
                {
                    "pointer": pointer_to(*each["loc"]),
                    "code": each["type"],
                    "detail": _in_words(each),
                }
                for each in error.errors(include_url=False, include_input=False)
            ]
        raise InvalidRequest(
            "The body does not fit; errors says where.", code="invalid_body", problems=problems
        )


def _in_words(error: ErrorDetails) -> str:
    if error.get("ctx", {}).get("pattern") == _PRINTABLE:
        return "holds a control character, such as a line break: remove it."
    return _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))


class StartBody(Body):
    """What ``POST /v1/workflows/{name}`` takes."""

    input: Annotated[
        Any, Field(description="The run's input; must fit the workflow's input schema.")
    ] = None
    business_payload: Annotated[Any, Field(description="Another name for `input`.")] = None
    correlation_id: Short | None = None
    context: Annotated[Any, Field(description="Kept with the run and returned, never read.")] = None
    version: Annotated[
        int | None, Field(ge=1, le=2_147_483_647, description="Not given: the default version.")
    ] = None
    workflow_type: Annotated[
        str | None, Field(description="When given, the name in the address.")
    ] = None

    @classmethod
    def read(cls, value: Any) -> Self:
        """As every body; ``input`` and ``business_payload`` together are one too many."""
        body = super().read(value)
        if {"input", "business_payload"} <= body.model_fields_set:
            detail = "is another name for input: send one of the two."
            raise InvalidRequest(
                f"business_payload {detail}",
                code="invalid_body",
                problems=[{"pointer": "/business_payload", "code": "two_inputs", "detail": detail}],
            )
        return body

    @property
    def payload(self) -> Any:
        """The run's input; an empty object when none was sent."""
        if "input" in self.model_fields_set:
            return self.input
        return self.business_payload if "business_payload" in self.model_fields_set else {}


class SignalBody(Body):
    """What ``POST /v1/workflows/{id}/signals`` takes."""

    name: Short
    signal_id: Annotated[
        Short | None, Field(description="Not given: the header Idempotency-Key stands for it.")
    ] = None
    payload: Any = None


class HoldBody(Body):
    """What ``POST /v1/services/{name}/hold`` takes."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    until: Annotated[
        datetime | None,
        Field(strict=False, description="Ends by itself then. Not given: until it is released."),
    ] = None

    @field_validator("until")
    @classmethod
    def _has_zone(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("has no time zone: write 2030-01-31T12:00:00Z")
        return value


class ReleaseBody(Body):
    """What ``POST /v1/services/{name}/release`` takes."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class ReasonBody(Body):
    """Why a person intervenes; it stands in the history."""

    reason: Reason = ""
