"""What the steps of a simulated run answer, as people write it: checked against the workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.durations import Duration, MicroUsd
from orchestrator.core.errors import ErrorClass, InvalidRequest, StepError
from orchestrator.core.policies import Block
from orchestrator.core.problems import pointer_to, suggestion
from orchestrator.core.schemas import compile_schema

_BODY = frozenset({"output", "error", "took", "cost_usd"})
_TAKES: Mapping[str, frozenset[str]] = {
    "tool": _BODY,
    "agent": _BODY,
    "router": frozenset({"routes", "error", "took", "cost_usd"}),
    "human_gate": frozenset({"decision", "by", "notes", "data", "never", "after"}),
    "sub_workflow": frozenset({"output", "error", "after", "cost_usd"}),
    "undo_child": frozenset({"error", "after"}),
}
_OF_SIGNAL = frozenset({"payload", "never", "after"})
_REFUSALS = frozenset({ErrorClass.PERMANENT, ErrorClass.RATE_LIMIT, ErrorClass.SCHEMA_ERROR})
_ALONE = ("output", "error", "routes", "decision", "payload", "never")


class GivenError(Block):
    """A failure of an attempt. ``not_applied`` promises that the effect did not happen, which a
    refusal for good or for now says by itself."""

    class_: Annotated[ErrorClass, Field(alias="class", strict=False)]
    message: str = "as given"
    not_applied: bool = False

    def as_error(self) -> StepError:
        """As a step stores it."""
        certain = self.not_applied or self.class_ in _REFUSALS
        details = {"not_applied": True} if certain else None
        return StepError(error_class=self.class_, message=self.message, details=details)


class Given(Block):
    """One answer. Which keys a step takes depends on its type; at most one of them says how it
    ends. ``after``: how long a wait takes; ``took``: how long a body works."""

    output: Any = None
    error: GivenError | None = None
    routes: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=1)] = None
    decision: Literal["approved", "rejected"] | None = None
    by: str = "user:simulated"
    notes: str = ""
    data: Any = None
    payload: Any = None
    never: Literal[True] | None = None
    after: Duration | None = None
    took: Duration | None = None
    cost_usd: MicroUsd | None = None

    def says(self, name: str) -> bool:
        """Whether the key is written (null included)."""
        return name in self.model_fields_set


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers by step (``charge``), or by item (``pages[2]``), in the order of their attempts.

    ``inner``: what is written for the steps of children, by the step that starts the child.
    """

    given: Mapping[str, Sequence[Given]]
    inner: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def find(self, key: str, scope: str, nth: int) -> Given | None:
        """The answer to the ``nth`` question (from 0) of this step; the last one stands for all
        further. An item's own come before those of its step."""
        found = self.given.get(key + scope) or self.given.get(key)
        return None if not found else found[min(nth, len(found) - 1)]


def read_answers(value: Any, workflow: CompiledWorkflow, *, prefix: str = "") -> Answers:
    """The answers as they are written: ``{step: answer}`` or ``{step: [answer, …]}``.

    ``call/ask`` is the step ``ask`` of the child that the step ``call`` starts; these are read once
    the child is there, with ``prefix`` before their names. Raises InvalidRequest
    (``invalid_answers``) with a pointer for every fault.
    """
    problems: list[dict[str, str]] = []
    given: dict[str, Sequence[Given]] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, written in _pairs(value, problems):
        pointer = "/answers" + pointer_to(prefix + name)
        key, slash, rest = name.partition("/")
        step = _step(key, workflow)
        if step is None or (slash and step.type != "sub_workflow"):
            mend = suggestion(key.partition("[")[0], workflow.by_key)
            _note(problems, pointer, "unknown_step", f'there is no step "{name}": {mend}')
        elif slash:
            inner.setdefault(key, {})[rest] = written
        else:
            given[name] = _read(written, step, workflow, pointer, problems)
    if problems:
        raise InvalidRequest(
            "The answers do not fit the workflow; errors says where.",
            code="invalid_answers",
            problems=problems,
        )
    return Answers(given, inner)


def _read(
    written: Any,
    step: StepPlan,
    workflow: CompiledWorkflow,
    pointer: str,
    problems: list[dict[str, str]],
) -> list[Given]:
    if not isinstance(written, list):
        one = _answer(written, step, workflow, pointer, problems)
        return [] if one is None else [one]
    if not written:
        _note(problems, pointer, "empty", "there is no answer in the list: write one.")
    read = (
        _answer(one, step, workflow, f"{pointer}/{n}", problems) for n, one in enumerate(written)
    )
    return [one for one in read if one is not None]


def _pairs(value: Any, problems: list[dict[str, str]]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        _note(problems, "/answers", "wrong_type", "must be an object: {step: answer}.")
        return
    yield from value.items()


def _step(name: str, workflow: CompiledWorkflow) -> StepPlan | None:
    key, bracket, rest = name.partition("[")
    if key not in workflow.by_key:
        return None
    step = workflow.step(key)
    if bracket and (step.for_each is None or not rest[:-1].isdecimal() or rest[-1:] != "]"):
        return None
    return step


def _answer(
    written: Any,
    step: StepPlan,
    workflow: CompiledWorkflow,
    pointer: str,
    problems: list[dict[str, str]],
) -> Given | None:
    try:
        given = Given.model_validate(written)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            where = pointer + pointer_to(*each["loc"])
            _note(problems, where, each["type"], each["msg"])
        return None
    before = len(problems)
    for code, where, words in (*_misfits(given, step), *_contents(given, step, workflow)):
        _note(problems, pointer + where, code, words)
    return given if len(problems) == before else None


def _misfits(given: Given, step: StepPlan) -> Iterator[tuple[str, str, str]]:
    """Keys that the step's type does not look at, and ends that exclude each other."""
    takes = _takes(step)
    for name in sorted(given.model_fields_set - takes):
        known = ", ".join(sorted(takes)) or "nothing"
        yield "field_not_taken", f"/{name}", f"a {step.type} step takes {known}: remove it."
    ends = [name for name in _ALONE if given.says(name)]
    if len(ends) > 1:
        words = f"{' and '.join(ends)} exclude each other: keep one."
        yield "many_ends", f"/{ends[1]}", words


def _takes(step: StepPlan) -> frozenset[str]:
    if step.type == "wait":
        return _OF_SIGNAL if step.config.get("signal") else frozenset()
    return _TAKES.get(step.type, _BODY)


def _contents(
    given: Given, step: StepPlan, workflow: CompiledWorkflow
) -> Iterator[tuple[str, str, str]]:
    """Values that the real thing would refuse at its door."""
    known = [route["id"] for route in step.config.get("routes", ())]
    for n, route in enumerate(given.routes or ()):
        if route not in known:
            mend = suggestion(route, known)
            yield "unknown_route", f"/routes/{n}", f'there is no route "{route}": {mend}'
    schema = workflow.signals.get(str(step.config.get("signal") or ""))
    if given.says("payload") and schema is not None:
        for found in compile_schema(schema).check(given.payload):
            yield "schema", f"/payload{found.pointer}", found.message
    form = step.config.get("form")
    if given.says("data") and form is not None:
        for found in compile_schema(form).check(given.data):
            yield "schema", f"/data{found.pointer}", found.message


def _note(problems: list[dict[str, str]], pointer: str, code: str, detail: str) -> None:
    problems.append({"pointer": pointer, "code": code, "detail": detail})
