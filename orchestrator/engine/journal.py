"""The journal of a step's conversations with models, kept in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core.errors import storable
from orchestrator.core.outcomes import Usage
from orchestrator.crash import Unit, crash_point
from orchestrator.engine.patience import outlast
from orchestrator.executors.journal import Turn
from orchestrator.models import turn_rows
from orchestrator.models.call_rows import Holder
from orchestrator.models.turn_rows import Place

_SHOWN = 300


@dataclass(slots=True, kw_only=True)
class StepJournal:
    """The conversations of one step or item in one round; written only by who holds its fence.

    ``name`` is the step as the history calls it.
    """

    holder: Holder
    name: str
    round: int
    attempt: int
    fingerprint: str = ""
    conversation: int = 1
    number: int = field(default=0)

    @property
    def action(self) -> str:
        """One step of one run, in one round: what effect keys of its calls begin with."""
        again = f":{self.round}" if self.round > 1 else ""
        return f"agent:{self.holder.run_id}:{self.name}{again}"

    def open(self, fingerprint: str) -> Sequence[Turn]:
        """The last conversation, if it began with the same question; else a new one begins."""
        self.fingerprint = fingerprint
        stored = turn_rows.read_last(self.holder.step_id, self.round)
        if not stored:
            return ()
        self.conversation = stored[0].conversation
        if stored[0].fingerprint != fingerprint:
            self.restart()
            return ()
        self.number = len(stored)
        return [
            Turn(
                kind="model" if turn.kind == "model" else "tool",
                name=turn.name,
                content=turn.content,
            )
            for turn in stored
        ]

    def restart(self) -> None:
        """From now on another conversation."""
        self.conversation += 1
        self.number = 0

    def store(self, turn: Turn) -> None:
        """Keep it, with its line of history and its cost, in one commit."""
        crash_point("turn:before")
        outlast(lambda: self._store(turn))
        self.number += 1

    def _store(self, turn: Turn) -> None:
        usage = turn.usage
        place = Place(
            round=self.round,
            conversation=self.conversation,
            number=self.number + 1,
            fingerprint=self.fingerprint,
            attempt=self.attempt,
        )
        row: dict[str, Any] = {
            "kind": turn.kind,
            "name": turn.name,
            "content": dict(turn.content),
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "cost": usage.cost_microusd,
            "price": turn.price,
            "seconds": turn.seconds,
            "model": turn.name,
        }
        with Unit("turn"):
            turn_rows.insert(self.holder, place, row, line=self._line(turn, place))

    def _line(self, turn: Turn, place: Place) -> tuple[str, dict[str, Any]]:
        """What the history says of it: call.answered, call.used or call.refused."""
        words: dict[str, Any] = {"step": self.name, "turn": place.number}
        if place.conversation > 1:
            words["conversation"] = place.conversation
        content = turn.content
        if turn.kind == "tool":
            words["tool"] = turn.name
            if content.get("refused"):
                words |= {"code": content["refused"], "why": str(content["answer"])[:_SHOWN]}
                return "call.refused", words
            words |= {"failed": bool(content.get("failed")), "seconds": turn.seconds}
            return "call.used", words
        usage = turn.usage
        words |= {
            "model": turn.name,
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "cost_microusd": usage.cost_microusd,
            "seconds": turn.seconds,
            "asks_for": [str(use["name"])[:_SHOWN] for use in content["uses"]][:10],
        }
        if content.get("dropped"):
            words["dropped"] = content["dropped"]
        if content.get("before"):
            words["instead_of"] = [storable(str(each))[:100] for each in content["before"]][:5]
        return "call.answered", words

    def spent(self) -> Usage:
        """What the step's conversations of this round have cost so far."""
        cost, tokens_in, tokens_out = turn_rows.spent(self.holder.step_id, self.round)
        return Usage(cost_microusd=cost, tokens_in=tokens_in, tokens_out=tokens_out)

    def owed(self) -> Usage:
        """Nothing: each turn was counted as it was stored."""
        return Usage()
