"""What a call costs, by the prices in the settings. A price that nobody gave is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens, which is micro-dollars for one. ``cached_in``: of those read
    from the provider's cache; None: as any other."""

    tokens_in: Decimal
    tokens_out: Decimal
    cached_in: Decimal | None = None

    def cost(self, *, tokens_in: int, tokens_out: int, cached: int = 0) -> int:
        """Micro-dollars of one call, rounded up; ``cached`` of ``tokens_in`` came from a cache."""
        cached = min(max(cached, 0), tokens_in)
        rate = self.tokens_in if self.cached_in is None else self.cached_in
        exact = self.tokens_in * (tokens_in - cached) + rate * cached + self.tokens_out * tokens_out
        return int(exact.to_integral_value(rounding=ROUND_CEILING))

    def __str__(self) -> str:
        cached = "" if self.cached_in is None else f" cached {self.cached_in}"
        return f"USD in {self.tokens_in}{cached} out {self.tokens_out} per million"


def read_price(given: Mapping[str, Any]) -> Price:
    """A price as settings have it: ``{"in": 3, "out": "15", "cached_in": 0.3}``; ValueError."""
    unknown = sorted(set(given) - {"in", "out", "cached_in"})
    if unknown or not {"in", "out"} <= set(given):
        raise ValueError(
            "a price has in and out, US dollars per million tokens, and may have cached_in"
        )
    cached = given.get("cached_in")
    return Price(
        tokens_in=_dollars(given["in"]),
        tokens_out=_dollars(given["out"]),
        cached_in=None if cached is None else _dollars(cached),
    )


def _dollars(value: Any) -> Decimal:
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{value!r} is no amount of dollars") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{value!r} is no amount of dollars")
    return amount
