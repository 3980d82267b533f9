"""The rules of deciding, as laws over generated gates and people."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    is_assignee,
    is_named,
    rule,
    tally,
)

NAMES = ["ann", "bob", "cid", "dee", "eve"]
ROLES = ["finance", "support_lead", "operator"]

assignees = st.lists(
    st.one_of(
        st.sampled_from(NAMES).map("user:{}".format),
        st.sampled_from(ROLES).map("role:{}".format),
        st.sampled_from(ROLES).map("group:{}".format),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
people = st.builds(
    Person,
    actor=st.sampled_from(NAMES),
    roles=st.frozensets(st.sampled_from(ROLES)),
    groups=st.frozensets(st.sampled_from(ROLES)),
    stands_in=st.booleans(),
)
votes = st.lists(
    st.builds(Vote, by=st.sampled_from(NAMES), choice=st.sampled_from(Choice)),
    unique_by=lambda vote: vote.by,
    max_size=5,
).map(tuple)
gates = st.builds(
    Gate,
    state=st.sampled_from(RequestState),
    assignees=assignees,
    quorum=st.integers(1, 4),
    four_eyes=st.booleans(),
    starter=st.sampled_from(NAMES),
    votes=votes,
)
choices = st.sampled_from(Choice)


def a_gate(**changes: object) -> Gate:
    plain = Gate(
        state=RequestState.OPEN,
        assignees=("role:finance",),
        quorum=1,
        four_eyes=False,
        starter="ann",
        votes=(),
    )
    return replace(plain, **changes)


def in_finance(name: str) -> Person:
    return Person(actor=name, roles=frozenset({"finance"}))


@given(gates, people, choices)
def test_an_answer_counts_only_on_an_open_gate_from_one_of_its_people(
    gate: Gate, person: Person, choice: Choice
) -> None:
    if isinstance(rule(gate, person, choice), Counted):
        assert gate.state is RequestState.OPEN
        assert person.stands_in or is_named(person, gate.assignees)
        assert person.actor not in {vote.by for vote in gate.votes}


@given(gates, people, choices)
def test_four_eyes_never_lets_the_starter_add_an_answer(
    gate: Gate, person: Person, choice: Choice
) -> None:
    mine = replace(gate, four_eyes=True, starter=person.actor, votes=())

    assert isinstance(rule(mine, person, choice), NotYours)


@given(gates, people, choices)
def test_an_answer_that_counted_is_recognised_when_it_is_repeated(
    gate: Gate, person: Person, choice: Choice
) -> None:
    ruling = rule(gate, person, choice)
    if not isinstance(ruling, Counted):
        return
    after = replace(gate, votes=(*gate.votes, Vote(by=person.actor, choice=choice)))
    for state in RequestState:
        assert isinstance(rule(replace(after, state=state), person, choice), Repeated)


@given(st.lists(st.tuples(st.sampled_from(NAMES), choices), max_size=20), st.integers(1, 5))
def test_a_gate_is_settled_once_by_a_rejection_or_by_so_many_different_people(
    pressed: list[tuple[str, Choice]], quorum: int
) -> None:
    gate, settled = a_gate(quorum=quorum), []
    for name, choice in pressed:
        ruling = rule(gate, in_finance(name), choice)
        if isinstance(ruling, Counted):
            gate = replace(gate, votes=(*gate.votes, Vote(by=name, choice=choice)))
            if ruling.outcome is not None:
                settled.append(ruling.outcome)
                gate = replace(gate, state=RequestState.DECIDED)

    approvers = {vote.by for vote in gate.votes if vote.choice is Choice.APPROVE}
    rejected = any(vote.choice is Choice.REJECT for vote in gate.votes)
    assert len(settled) <= 1
    if settled == [Outcome.APPROVED]:
        assert len(approvers) == quorum
        assert not rejected
    elif settled == [Outcome.REJECTED]:
        assert rejected
        assert len(approvers) < quorum
    else:
        assert not rejected
        assert len(approvers) < quorum


@given(votes, st.integers(1, 4))
def test_the_order_of_the_answers_does_not_matter(cast: tuple[Vote, ...], quorum: int) -> None:
    assert tally(cast, quorum=quorum) == tally(tuple(reversed(cast)), quorum=quorum)


def test_saying_the_opposite_later_is_refused() -> None:
    gate = a_gate(quorum=2, votes=(Vote(by="bob", choice=Choice.APPROVE),))

    ruling = rule(gate, in_finance("bob"), Choice.REJECT)

    assert isinstance(ruling, TooLate)
    assert ruling.code == "already_answered"


def test_a_stranger_learns_nothing_of_a_closed_gate() -> None:
    gate = a_gate(state=RequestState.DECIDED)

    assert isinstance(rule(gate, Person(actor="eve"), Choice.APPROVE), NotYours)


@pytest.mark.parametrize("state", [s for s in RequestState if s is not RequestState.OPEN])
def test_a_closed_gate_names_its_state(state: RequestState) -> None:
    ruling = rule(a_gate(state=state), in_finance("bob"), Choice.APPROVE)

    assert isinstance(ruling, TooLate)
    assert ruling.code == f"approval_{state}"


@pytest.mark.parametrize(
    ("person", "named"),
    [
        (Person(actor="user:ann"), True),
        (Person(actor="ann"), True),
        (Person(actor="anna"), False),
        (Person(actor="x", roles=frozenset({"ann"})), False),
        (Person(actor="x", groups=frozenset({"emea"})), True),
        (Person(actor="x", roles=frozenset({"emea"})), False),
        (Person(actor="x", roles=frozenset({"finance"})), True),
        (Person(actor="role:finance"), False),
    ],
)
def test_people_are_meant_by_role_group_or_name(person: Person, *, named: bool) -> None:
    assert is_named(person, ("role:finance", "group:emea", "user:ann")) is named


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("role:finance", True),
        ("user:ann@example.com", True),
        ("group:", False),
        ("role: ", False),
        ("finance", False),
        ("team:finance", False),
        ("", False),
    ],
)
def test_assignees_name_a_role_a_group_or_a_user(text: str, *, good: bool) -> None:
    assert is_assignee(text) is good
