"""Durations and money as documents write them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic.functional_validators import PlainValidator
from pydantic_core import PydanticCustomError

_SHORT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(
    r"P(?!$)(?:(?P<weeks>[0-9]{1,6})W)?(?:(?P<days>[0-9]{1,8})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,8})H)?(?:(?P<minutes>[0-9]{1,8})M)?"
    r"(?:(?P<seconds>[0-9]{1,10}(?:\.[0-9]{1,6})?)S)?)?",
    re.ASCII,
)
DURATION_PATTERN = (
    r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d)"
    r"|P(?:[0-9]+W)?(?:[0-9]+D)?(?:T(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(\.[0-9]+)?S)?)?)$"
)
"""The form of a duration, for editors; ``parse_duration`` is a little stricter (no bare ``P``)."""

_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?(e[+-]?[0-9]{1,2})?", re.ASCII)
_UNIT_S = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_UNIT_S["d"] = Decimal(86400)
_LONGEST = timedelta(days=3660)
_MOST_MICROUSD = 10**15

_DURATION_MEND = 'write it like "500ms", "30s", "5m", "4h", "7d" or ISO 8601 such as "PT4H".'
_MONEY_MEND = 'write US dollars with at most 6 decimals, such as 2.00 or "0.50".'


def parse_duration(text: str) -> timedelta:
    """``500ms 30s 5m 4h 7d`` or ISO 8601 (``PT4H``) as a timedelta; else ValueError.

    ISO years and months have no fixed length and are refused. At most ten years.
    """
    duration = _parse_short(text)
    if duration is None:
        duration = _parse_iso(text)
    if duration is None:
        raise ValueError(f'"{text[:40]}" is not a duration: {_DURATION_MEND}')
    if duration > _LONGEST:
        raise ValueError(f'"{text[:40]}" is longer than ten years: use a shorter duration.')
    return duration


def format_duration(duration: timedelta) -> str:
    """The shortest exact text that ``parse_duration`` reads back: ``90s``, ``4h``, ``7d``."""
    micros = duration // timedelta(microseconds=1)
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000)):
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    if micros % 1_000_000 == 0:
        return f"{micros // 1_000_000}s"
    if micros % 1000 == 0:
        return f"{micros // 1000}ms"
    return f"{Decimal(micros) / 1000:f}ms"


def parse_money(value: Any) -> int:
    """Decimal US dollars (number or text) as integer micro-dollars; ValueError says how to mend."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"not an amount of money: {_MONEY_MEND}")
    if not _AMOUNT.fullmatch(str(value)):
        raise ValueError(f'"{str(value)[:40]}" is not an amount of money: {_MONEY_MEND}')
    amount = Decimal(str(value)) * 1_000_000
    whole = amount.to_integral_value()
    if amount != whole:
        raise ValueError(f'"{str(value)[:40]}" is not exact: {_MONEY_MEND}')
    if not 0 <= whole <= _MOST_MICROUSD:
        raise ValueError("the amount must lie between 0 and 1,000,000,000 US dollars.")
    return int(whole)


def format_money(microusd: int) -> str:
    """Micro-dollars as decimal US dollars with at least two decimals: ``2.00``, ``0.000125``."""
    text = f"{Decimal(microusd) / 1_000_000:.6f}"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def _parse_short(text: str) -> timedelta | None:
    match = _SHORT.fullmatch(text)
    if match is None:
        return None
    return _seconds(Decimal(match[1]) * _UNIT_S[match[2]])


def _parse_iso(text: str) -> timedelta | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    parts = {name: Decimal(value or 0) for name, value in match.groupdict().items()}
    days = parts["weeks"] * 7 + parts["days"]
    return _seconds(days * 86400 + parts["hours"] * 3600 + parts["minutes"] * 60 + parts["seconds"])


def _seconds(seconds: Decimal) -> timedelta:
    # Beyond the bound the exact value does not matter: it is refused, and timedelta would overflow.
    return timedelta(microseconds=int(min(seconds, Decimal(10**9)) * 1_000_000))


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("bad_duration", "not a duration: " + _DURATION_MEND)
    try:
        return parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("bad_duration", "{text}", {"text": str(error)}) from None


def _positive_duration(value: Any) -> Any:
    duration = _duration(value)
    if duration <= timedelta(0):
        raise PydanticCustomError("bad_duration", "the duration must be longer than nothing.")
    return duration


def _money(value: Any) -> int:
    try:
        return parse_money(value)
    except ValueError as error:
        raise PydanticCustomError("bad_money", "{text}", {"text": str(error)}) from None


Duration = Annotated[timedelta, BeforeValidator(_duration)]
"""A duration that may be nothing (a delay)."""

PositiveDuration = Annotated[timedelta, BeforeValidator(_positive_duration)]
"""A duration longer than nothing (a time limit)."""

_MoneyText = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]{1,6})?$")]
MicroUsd = Annotated[
    int,
    PlainValidator(_money, json_schema_input_type=Annotated[float, Field(ge=0)] | _MoneyText),
]
"""Money: decimal US dollars in documents, integer micro-dollars inside."""
