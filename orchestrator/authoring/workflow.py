"""The Python face of a workflow: a builder whose result is the same document as the YAML's."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import orjson

from orchestrator.authoring.blocks import (
    AgentBlock,
    HumanGateBlock,
    RouterBlock,
    StepBlock,
    WaitBlock,
    WorkflowBlock,
)
from orchestrator.authoring.errors import WorkflowError
from orchestrator.authoring.plain import plain
from orchestrator.authoring.references import Expr, StepRef, ToolName
from orchestrator.core.definition import SCHEMA_NAME, canonical_json, digest, parse_document
from orchestrator.core.problems import Problem, pointer_parts, suggestion

_HERE = str(Path(__file__).parent) + os.sep
_WORDS_OF_PYTHON = {"for_": "for"}


class Written(NamedTuple):
    """Where something was written: a file and a line from 1."""

    file: str
    line: int


class Workflow:
    """A workflow that is being written.

    Each method adds one step and gives back its name for others. What the methods take are the
    keys of the document, word for word; nothing is added and nothing left out, so that
    ``canonical`` is the same as that of the same workflow written as YAML. Wrong keys and values
    that no document can hold raise WorkflowError at the line that wrote them; everything else is
    found by ``manage.py validate`` and ``publish``.
    """

    def __init__(self, name: str, **options: Unpack[WorkflowBlock]) -> None:
        self.name = name
        self.place = _caller()
        self._top: dict[str, Any] = {}
        self._steps: dict[str, dict[str, Any]] = {}
        self._places: dict[str, Written] = {}
        self._set(dict(options), WorkflowBlock)

    # -- names ---------------------------------------------------------------------------------

    @property
    def input(self) -> Expr:
        """The run's input, in expressions."""
        return Expr("input")

    @property
    def run(self) -> Expr:
        """``run.id``, ``run.workflow``, ``run.correlation_id``, in expressions."""
        return Expr("run")

    @property
    def trigger(self) -> Expr:
        """What started the run, in expressions."""
        return Expr("trigger")

    def step(self, key: str) -> StepRef:
        """A step by its key, added already; WorkflowError when there is none."""
        if key not in self._steps:
            mend = suggestion(key, self._steps)
            raise _at(_caller(), f'{self.name} has no step "{key}" so far: {mend}')
        return StepRef(key, self)

    # -- what is written -----------------------------------------------------------------------

    def agent(self, key: str, model: str, **block: Unpack[AgentBlock]) -> StepRef:
        """A language model answers; ``model`` is an alias or ``provider:model``."""
        return self._add(key, "agent", AgentBlock, dict(block), model=model)

    def tool(self, key: str, tool: ToolName, **block: Unpack[StepBlock]) -> StepRef:
        """A registered function runs: its name, or the decorated function itself."""
        return self._add(key, "tool", StepBlock, dict(block), tool=tool)

    def human_gate(self, key: str, **block: Unpack[HumanGateBlock]) -> StepRef:
        """A person decides."""
        return self._add(key, "human_gate", HumanGateBlock, dict(block))

    def sub_workflow(
        self, key: str, workflow: str | Workflow, **block: Unpack[StepBlock]
    ) -> StepRef:
        """Another workflow runs: ``name``, ``name@3``, or the workflow itself."""
        name = workflow.name if isinstance(workflow, Workflow) else workflow
        return self._add(key, "sub_workflow", StepBlock, dict(block), workflow=name)

    def router(self, key: str, **block: Unpack[RouterBlock]) -> StepRef:
        """One or more ways are chosen. Steps that come later are named by their key."""
        return self._add(key, "router", RouterBlock, dict(block))

    def wait(self, key: str, **block: Unpack[WaitBlock]) -> StepRef:
        """Wait for a while (``for_``), until an instant, or for a signal."""
        return self._add(key, "wait", WaitBlock, dict(block))

    def returns(self, output: Any) -> None:
        """What the run answers; written last, when its steps have names."""
        self._set({"output": output}, WorkflowBlock)

    def _set(self, options: dict[str, Any], known: type[Any]) -> None:
        place = _caller()
        block = _named(options, known, place, f'Workflow("{self.name}")')
        again = [key for key in block if key in self._top]
        if again:
            raise _at(place, f'{self.name} says "{again[0]}" twice: remove one.')
        self._top.update(_plain(block, place, self))

    def _add(
        self, key: str, kind: str, known: type[Any], block: dict[str, Any], **first: Any
    ) -> StepRef:
        place = _caller()
        if not isinstance(key, str):
            raise _at(place, f"a step's key is text, not {type(key).__name__}")
        if key in self._places:
            earlier = self._places[key]
            raise _at(
                place,
                f'{self.name} has a step "{key}" already ({earlier.file}:{earlier.line}): give'
                " one of them another key.",
            )
        named = _named(block, known, place, f'{kind}("{key}")')
        self._steps[key] = {"type": kind, **_plain(first | named, place, self)}
        self._places[key] = place
        return StepRef(key, self)

    # -- what comes of it ----------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The document as plain JSON, a fresh copy; steps in the order in which they were added."""
        value = {"schema": SCHEMA_NAME, "name": self.name, **self._top, "steps": self._steps}
        copy: dict[str, Any] = plain(value)
        return copy

    @property
    def canonical(self) -> bytes:
        """The canonical bytes of the document: those of the same workflow written as YAML."""
        return canonical_json(self.document())

    @property
    def digest(self) -> str:
        """SHA-256 of ``canonical``, as lower-case hex."""
        return digest(self.canonical)

    def to_json(self) -> str:
        """The document as indented JSON, keys and steps in the order in which they were written."""
        return orjson.dumps(self.document(), option=orjson.OPT_INDENT_2).decode() + "\n"

    def problems(self) -> list[Problem]:
        """What is wrong with its shape, without asking an installation for its names."""
        return parse_document(self.document())[1]

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the workflows that it calls, without version, each once."""
        called = (step.get("workflow", "") for step in self._steps.values())
        return tuple(dict.fromkeys(name.partition("@")[0] for name in called if name))

    def written_at(self, pointer: str) -> Written:
        """Where the part of the document that a JSON pointer names was written."""
        parts = pointer_parts(pointer)
        if len(parts) >= 2 and parts[0] == "steps":
            return self._places.get(parts[1], self.place)
        return self.place

    @classmethod
    def from_document(cls, value: Mapping[str, Any]) -> Workflow:
        """The workflow of a document (plain JSON); the same canonical bytes come out again.

        WorkflowError with the first problems when its shape is wrong.
        """
        document, problems = parse_document(value)
        if document is None:
            told = "; ".join(f"{p.pointer or '/'}: {p.message}" for p in problems[:3])
            raise _at(_caller(), f"this is no document: {told}")
        flow = cls(document.name)
        flow._top = plain({k: v for k, v in value.items() if k not in ("schema", "name", "steps")})
        for key, written in value["steps"].items():
            flow._steps[key] = plain(written)
            flow._places[key] = flow.place
        return flow

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._steps)} steps)"


def _named(block: dict[str, Any], known: type[Any], place: Written, what: str) -> dict[str, Any]:
    """The block with the document's words for its keys; a key that there is not is refused."""
    allowed = known.__required_keys__ | known.__optional_keys__
    for key in block:
        if key not in allowed:
            raise _at(place, f'{what} knows no "{key}": {suggestion(key, allowed)}')
    return {_WORDS_OF_PYTHON.get(key, key): each for key, each in block.items()}


def _plain(block: dict[str, Any], place: Written, flow: Workflow) -> dict[str, Any]:
    try:
        made: dict[str, Any] = plain(block, flow=flow)
    except WorkflowError as error:
        raise _at(place, error.words) from None
    return made


def _at(place: Written, words: str) -> WorkflowError:
    return WorkflowError(words, file=place.file, line=place.line)


def _caller() -> Written:
    """The line outside this package that is being carried out."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return Written("<unknown>", 0)
    return Written(frame.f_code.co_filename, frame.f_lineno)
