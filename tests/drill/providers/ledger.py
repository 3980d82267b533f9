"""A provider's own book: what was really applied, call by call. No project code in here."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Fault:
    """What befalls the calls of an operation whose reference begins with ``prefix``.

    ``kind``: ``no_answer`` (applied, then silence), ``error_after`` (applied, then 500),
    ``half_body`` (applied, half of the answer, then the end), ``cut_after`` (applied, then the
    end), ``error_before`` (503, nothing applied), ``limited`` (429 with Retry-After, nothing
    applied), ``cut_before`` (the end, nothing applied), ``slow`` (applied, answered after
    ``delay_ms``). ``times`` calls, each with probability ``chance``.
    """

    kind: str
    operation: str = ""
    prefix: str = ""
    times: int = 1
    chance: float = 1.0
    delay_ms: int = 500


@dataclass
class Ledger:
    """``honours_keys``: a key that was seen before finds its entry, and nothing is applied."""

    honours_keys: bool
    entries: list[dict[str, Any]] = field(default_factory=list)
    by_key: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    by_reference: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def apply(self, operation: str, key: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and answer. A body has a ``reference``: the caller's name for the affair."""
        if self.honours_keys and not key:
            return 400, {"error": "this provider wants an Idempotency-Key"}
        known = self.by_key.get((operation, key)) if self.honours_keys and key else None
        if known is not None:
            if known["request"] != body:
                return 422, {"error": "the key was used for another request"}
            return 200, known["answer"]
        return 201, self._enter(operation, key, body)["answer"]

    def _enter(self, operation: str, key: str | None, body: dict[str, Any]) -> dict[str, Any]:
        number = len(self.entries) + 1
        mark = hashlib.sha256(f"{operation} {number}".encode()).hexdigest()[:12]
        answer = {"external_ref": f"{operation}_{mark}", "status": "applied", "entry": number}
        entry = {
            "entry": number,
            "operation": operation,
            "key": key,
            "reference": body["reference"],
            "request": body,
            "answer": answer,
        }
        self.entries.append(entry)
        self.by_reference.setdefault((operation, body["reference"]), []).append(entry)
        if key:
            self.by_key.setdefault((operation, key), entry)
        return entry

    def find(self, operation: str, *, key: str = "", reference: str = "") -> list[dict[str, Any]]:
        """The entries under a key (only of a provider that honours them), or a reference."""
        if key:
            found = self.by_key.get((operation, key)) if self.honours_keys else None
            return [found] if found else []
        return self.by_reference.get((operation, reference), [])

    def doubled(self) -> list[list[str]]:
        """Affairs that were applied more than once: ``[operation, reference]``."""
        return [list(name) for name, found in self.by_reference.items() if len(found) > 1]

    def forget(self) -> None:
        """An empty book."""
        for book in (self.entries, self.by_key, self.by_reference, self.calls):
            book.clear()


def as_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
