"""An effect in doubt: ask the tool's ``reconcile`` what became of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from orchestrator.authoring import registry
from orchestrator.executors.base import StepContext
from orchestrator.executors.json_output import plain_json
from orchestrator.executors.tool import ToolCall

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The effect happened; ``output`` is what the step would have answered."""

    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplied:
    """The effect certainly did not happen: it may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody can tell; ``reason`` is one sentence for the person who must."""

    reason: str


def look_up_effect(context: StepContext) -> Applied | NotApplied | Unknown:
    """What became of the effect of an earlier attempt of this step. Calls the outside world.

    ``context`` is that of the attempt to come, with the same input and idempotency key.
    """
    name = context.config["tool"]
    if name not in registry or registry.get(name).reconcile is None:
        return Unknown(reason=f"Tool {name} cannot look up what became of its effect.")
    spec = registry.get(name)
    try:
        output = spec.look_up(ToolCall.of(context, spec), context.input)
        return NotApplied() if output is None else Applied(output=plain_json(output))
    except Exception as error:  # the author may raise anything; unknown is the safe reading
        logger.warning("reconcile of tool %s failed", name, exc_info=True)
        return Unknown(reason=f"Looking up {name} failed: {type(error).__name__}: {error}"[:500])
