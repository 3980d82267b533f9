"""Who may decide, and when the decisions add up. Pure: no Django, no clock, no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

ASSIGNEE_KINDS = ("role", "group", "user")


class RequestState(StrEnum):
    """Where a request stands (FORMAT section 4, Gates)."""

    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Choice(StrEnum):
    """What one person may answer."""

    APPROVE = "approve"
    REJECT = "reject"


class Outcome(StrEnum):
    """What the answers add up to; the word that the gate's output carries."""

    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks to decide. ``actor`` is the name that the record keeps.

    ``stands_in``: an operator (console superuser, shell) who may answer for any assignee. The
    starter of a four-eyes gate is refused all the same.
    """

    actor: str
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    stands_in: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's recorded answer."""

    by: str
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The rules of one request at one instant. ``assignees`` are those asked by now."""

    state: RequestState
    assignees: tuple[str, ...]
    quorum: int
    four_eyes: bool
    starter: str
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The answer is taken. ``outcome`` is what it settles, None while more approvers are needed."""

    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same person said the same before: nothing happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotYours:
    """The person may not decide here."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLate:
    """The gate is closed, or the person has already said otherwise."""

    code: str
    why: str


Ruling = Counted | Repeated | NotYours | TooLate


def is_assignee(text: str) -> bool:
    """Whether ``text`` names somebody: ``role:finance``, ``group:emea``, ``user:alice``."""
    kind, _, name = text.partition(":")
    return kind in ASSIGNEE_KINDS and bool(name.strip())


def is_named(person: Person, assignees: Iterable[str]) -> bool:
    """Whether one of the assignees is this person, by role, group or name."""
    return any(_is_meant(person, assignee) for assignee in assignees)


def tally(votes: Iterable[Vote], *, quorum: int) -> Outcome | None:
    """One rejection rejects; ``quorum`` different approvers approve; else None."""
    approvers = set()
    for vote in votes:
        if vote.choice is Choice.REJECT:
            return Outcome.REJECTED
        approvers.add(vote.by)
    return Outcome.APPROVED if len(approvers) >= quorum else None


def rule(gate: Gate, person: Person, choice: Choice) -> Ruling:
    """What becomes of ``person`` answering ``choice`` now.

    A repetition is recognised before anything else, so that a client that lost the answer may ask
    again whatever has happened since. Whoever may not decide learns nothing of the gate's state.
    """
    said = next((vote.choice for vote in gate.votes if vote.by == person.actor), None)
    if said is choice:
        return Repeated()
    refusal = _refusal(gate, person)
    if refusal:
        return NotYours(why=refusal)
    if gate.state is not RequestState.OPEN:
        return TooLate(code=f"approval_{gate.state}", why=f"This approval is {gate.state}.")
    if said is not None:
        return TooLate(code="already_answered", why=f"{person.actor} has already said {said}.")
    votes = (*gate.votes, Vote(by=person.actor, choice=choice))
    return Counted(outcome=tally(votes, quorum=gate.quorum))


def _refusal(gate: Gate, person: Person) -> str:
    if gate.four_eyes and person.actor == gate.starter:
        return "Whoever started the run may not decide here (four_eyes)."
    if person.stands_in or is_named(person, gate.assignees):
        return ""
    return f"This approval is for {', '.join(gate.assignees)}."


def _is_meant(person: Person, assignee: str) -> bool:
    kind, _, name = assignee.partition(":")
    if kind == "role":
        return name in person.roles
    if kind == "group":
        return name in person.groups
    return kind == "user" and person.actor in (name, assignee)
