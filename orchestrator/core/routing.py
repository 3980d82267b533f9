"""Which queue a step's work goes to, when an installation splits its queues (SPEC 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a rule may look at. ``type`` is the queue that the step's type has by itself."""

    type: str
    tenant: str = ""
    workflow: str = ""
    tool: str = ""
    model: str = ""
    priority: str = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoute:
    """One rule. ``to`` is a whole queue (``tool.erp``), or what is put behind the type's queue:
    ``.erp``, ``@eu``. The others are patterns (``*`` for any text) that must all fit."""

    to: str
    type: str = "*"
    tenant: str = "*"
    workflow: str = "*"
    tool: str = "*"
    model: str = "*"
    priority: str = "*"

    def fits(self, place: Place) -> bool:
        """Whether the rule is for this place."""
        return all(
            fnmatchcase(getattr(place, name), getattr(self, name))
            for name in ("type", "tenant", "workflow", "tool", "model", "priority")
        )

    def queue(self, place: Place) -> str:
        """The queue that the rule names for this place."""
        return place.type + self.to if self.to[:1] in (".", "@") else self.to


def route(routes: Sequence[QueueRoute], place: Place) -> str:
    """The queue by the first rule that fits; the type's own when none does.

    A rule whose queue serves another type fits nothing: no worker of that queue runs the type.
    """
    for rule in routes:
        if rule.fits(place) and queue_type(rule.queue(place)) == place.type:
            return rule.queue(place)
    return place.type


def queue_type(queue: str) -> str:
    """The step type that a queue serves: ``tool`` for ``tool.erp`` and ``tool@eu``."""
    return queue.split("@", 1)[0].split(".", 1)[0]
