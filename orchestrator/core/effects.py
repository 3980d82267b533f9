"""What a step may do about its effect, given what is stored under its key (DESIGN section 2, 6).

Never a blind retry: an intent without a receipt is *in doubt*, and is looked up, sent again only
where that is harmless, or given to a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from orchestrator.core.errors import ErrorClass, StepError, storable
from orchestrator.core.scopes import kind_of

MAX_KEY_BYTES = 1000
_MAX_REASON = 500


class EffectStatus(StrEnum):
    """What is known of an effect."""

    INTENDED = "intended"  # the call may have been made
    APPLIED = "applied"  # the receipt is stored
    NOT_APPLIED = "not_applied"  # it certainly did not happen: may be called again
    IN_DOUBT = "in_doubt"  # a call ended without an answer that tells
    GIVEN_UP = "given_up"  # nobody can tell, and the document says to go on


class Course(StrEnum):
    """What the next attempt does."""

    CALL = "call"  # nothing is stored, or it did not happen: intend, then call
    FOUND = "found"  # the receipt is there: answer with it, call nobody
    CLASH = "clash"  # the key was used for another request: an error
    UNDONE = "undone"  # it happened and was compensated since: an error, nothing stands any more
    BUSY = "busy"  # another step is calling right now, or asks a person about it: later
    DOUBT = "doubt"  # an intent without receipt: look it up first


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEffect:
    """What is stored under a key. ``busy``: another step holds it that is running, or waits for a
    person's word about it, which nobody could give once the effect were ours.
    ``holder`` is one phrase for people: the step, its run, the tool. ``step`` (its id) and
    ``fence`` name the attempt that holds it. ``undone``: its compensation has completed."""

    status: EffectStatus
    request_hash: str
    response: Any
    busy: bool
    holder: str = ""
    step: str = ""
    fence: int = 0
    undone: bool = False

    @property
    def seen(self) -> dict[str, Any]:
        """What a claim that takes it over must still find."""
        return {"step": self.step, "fence": self.fence, "status": str(self.status)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPlan:
    """An effect as worked out before the claim. ``response`` is the stored answer, if found;
    ``holder`` says in words who holds the key, ``seen`` what a claim must still find."""

    key: str
    tool: str
    request_hash: str
    course: Course
    response: Any = None
    holder: str = ""
    seen: Mapping[str, Any] | None = None

    @property
    def intent(self) -> dict[str, Any]:
        """The row to write with the claim, as sql/apply.sql reads it. ``take``: an earlier doubt
        is taken over, if it is still as it was ``seen``."""
        take = self.course is Course.DOUBT
        row = {"key": self.key, "hash": self.request_hash, "tool": self.tool, "take": take}
        return {**row, "seen": self.seen} if take else row


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectEnd:
    """What the settle writes about the effect; ``response`` with APPLIED only. ``already``: the
    receipt was there before, so only the history tells of it."""

    key: str
    status: EffectStatus
    response: Any = None
    reason: str = ""
    already: bool = False


def key_problem(value: Any) -> str | None:
    """Why a value cannot be an effect's key, or None. A key is one business action for ever: what
    would be the same for all that lack it (nothing, a blank text) is none."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return f"an effect's key is text, not {kind_of(value)}"
    text = str(value)
    if not text.strip():
        return "an effect's key may not be blank: all that lack it would be one action"
    if "\x00" in text:
        return "an effect's key may not hold a NUL character"
    if len(text.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        return f"an effect's key may have at most {MAX_KEY_BYTES:,} bytes"
    return None


def request_hash(tool: str, data: Any) -> str:
    """SHA-256 of the canonical request: one key stands for one request."""
    text = orjson.dumps([tool, data], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


def response_hash(response: Any) -> str:
    """SHA-256 of the canonical answer, kept with the receipt."""
    return hashlib.sha256(orjson.dumps(response, option=orjson.OPT_SORT_KEYS)).hexdigest()


def external_ref(response: Any) -> str:
    """The provider's own name for what happened, where the answer carries one."""
    reference = response.get("external_ref") if isinstance(response, dict) else None
    return reference if isinstance(reference, str) else ""


def given_up_warning(step: str, key: str, reason: str) -> dict[str, Any]:
    """What the run shows of an effect that nobody can tell and that the document says to skip."""
    words = f"nobody can tell whether effect {key} was applied: {shown_reason(reason)}"
    error = StepError(error_class=ErrorClass.TRANSIENT, message=words)
    return {"step": step, "error": error.as_json()}


def shown_reason(reason: str) -> str:
    """The reason as the history keeps it."""
    return storable(reason)[:_MAX_REASON]


def course(stored: StoredEffect | None, request: str) -> Course:
    """The one decision: what an attempt does about its effect."""
    if stored is None:
        return Course.CALL
    if stored.request_hash != request:
        return Course.CLASH
    if stored.status in (EffectStatus.APPLIED, EffectStatus.GIVEN_UP):
        return Course.UNDONE if stored.undone else Course.FOUND
    if stored.busy:
        return Course.BUSY
    return Course.CALL if stored.status is EffectStatus.NOT_APPLIED else Course.DOUBT
