"""What a database gives, as plain JSON."""

from __future__ import annotations

import base64
import math
from datetime import date, time
from typing import Any


def plain(value: Any) -> Any:
    """Text, numbers, booleans, null, lists and objects as they are; instants and dates as ISO 8601,
    bytes as base64, numerics and everything else (also numbers that JSON has not) as text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -(2**63) <= value < 2**63 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)
