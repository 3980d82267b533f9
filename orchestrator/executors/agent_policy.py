"""What an agent's model may have done. A model proposes; this decides (SPEC 5.2).

Refused: a tool that the step does not list, arguments that do not fit, values for what only the
document may say, and a consequential tool once the conversation holds text that nobody vouched
for. Of one answer's uses only the first ones are looked at (``model_call.MAX_USES``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from orchestrator.adapters.llm.base import ToolOffer, ToolUse
from orchestrator.authoring import ArgumentMismatch, ToolSpec, registry
from orchestrator.core.effects import key_problem
from orchestrator.executors.json_output import NotJson, plain_json
from orchestrator.executors.model_call import MAX_ARGUMENTS

_MAX_NAMED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A use that is not made: a code for the record, and why, for the model and for people."""

    code: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A use that may be made. ``effect_key`` None: a call that has no consequence outside."""

    tool: str
    arguments: dict[str, Any]
    effect_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for one step. ``listed`` is its allow-list; ``strangers`` names the sources that
    nobody vouched for, asked for only where it matters; ``action`` begins each effect key."""

    listed: Sequence[str]
    strangers: Callable[[], Sequence[str]]
    action: str

    def decide(self, use: ToolUse) -> Allowed | Refusal:
        """Whether the use may be made."""
        if use.name not in self.listed:
            return Refusal(
                code="not_listed",
                why=f"this agent may not call {use.name[:_MAX_NAMED]!r}: its step does not list it",
            )
        if use.name not in registry:
            return Refusal(code="unknown_tool", why=f"no tool is called {use.name}")
        spec = registry.get(use.name)
        arguments = _arguments(use, spec)
        if isinstance(arguments, Refusal):
            return arguments
        return self._consequences(spec, arguments)

    def _consequences(self, spec: ToolSpec, arguments: dict[str, Any]) -> Allowed | Refusal:
        if not is_consequential(spec):
            return Allowed(tool=spec.name, arguments=arguments, effect_key=None)
        strangers = self.strangers()
        if strangers:
            return Refusal(
                code="needs_gate",
                why=f"{spec.name} acts on the outside, and this conversation holds text that nobody"
                f" vouched for ({', '.join(strangers)[:300]}): a person has to agree first, at a"
                " human_gate before this step",
            )
        key = effect_key(self.action, spec.name, arguments)
        problem = key_problem(key)
        if problem is not None:
            return Refusal(code="bad_arguments", why=problem)
        return Allowed(tool=spec.name, arguments=arguments, effect_key=key)


def is_consequential(spec: ToolSpec) -> bool:
    """Whether a call may change something outside: anything that is not plainly repeatable, or
    that has to be looked up afterwards."""
    return spec.effect == "required" or not spec.idempotent or spec.reconciles


def effect_key(action: str, tool: str, arguments: dict[str, Any]) -> str:
    """One key for one request within one step of one run: a model that asks for the same twice gets
    the receipt of the first."""
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=True)
    return f"{action}:{tool}:{sha256(text.encode()).hexdigest()[:32]}"


def offers(listed: Sequence[str]) -> tuple[ToolOffer, ...]:
    """What the model is told of the tools that it may ask for. Those that take a value from the
    document alone are not offered."""
    specs = [registry.get(name) for name in listed if name in registry]
    return tuple(
        ToolOffer(name=spec.name, description=spec.doc, input_schema=spec.input_schema)
        for spec in specs
        if not spec.literal
    )


def _arguments(use: ToolUse, spec: ToolSpec) -> dict[str, Any] | Refusal:
    if spec.literal:
        return Refusal(
            code="fixed_argument",
            why=f"{spec.name} takes {', '.join(spec.literal)} from the document as it is, never"
            " from a model",
        )
    if len(use.arguments) > MAX_ARGUMENTS:
        return Refusal(code="bad_arguments", why="the arguments are too long")
    try:
        given = plain_json(json.loads(use.arguments or "{}"))
    except (NotJson, ValueError, RecursionError) as error:
        return Refusal(code="bad_arguments", why=f"the arguments are not JSON: {error}"[:500])
    if not isinstance(given, dict):
        return Refusal(code="bad_arguments", why="the arguments are no JSON object")
    try:
        spec.bind(given)
    except ArgumentMismatch as error:
        return Refusal(
            code="bad_arguments", why=f"the arguments do not fit {spec.name}: {error}"[:1000]
        )
    return given
