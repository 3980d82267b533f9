"""A provider's listing against our receipts: doubled, unknown, missing, different, unsettled.

The exactly-once promise ends at the provider's own book, so that book is read and compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from orchestrator.core.effects import EffectStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One thing that stands in a provider's book; what was voided there does not belong in it.

    ``idempotency_key`` is ours, where the provider kept it. ``at`` is the provider's instant.
    ``facts`` (an amount, a currency) are compared with the answer that we hold, field by field;
    ``request_hash`` with that of our intent, where the provider was told it.
    """

    external_ref: str
    idempotency_key: str = ""
    at: datetime | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    request_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What we hold under a key: the intent, and the receipt if there is one."""

    key: str
    status: EffectStatus
    external_ref: str
    request_hash: str
    response: Any
    settled_at: datetime | None
    run_id: str


class MismatchKind(StrEnum):
    """What can be wrong between the two books."""

    DOUBLED = "doubled"  # the provider has it more than once
    UNKNOWN = "unknown"  # the provider has it, we never meant it
    MISSING = "missing"  # we have a receipt, the provider has nothing
    DIFFERENT = "different"  # both have it, but not the same
    UNSETTLED = "unsettled"  # the provider has it, we are still in doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One difference between the two books."""

    kind: MismatchKind
    key: str
    external_ref: str
    run_id: str
    words: str

    def as_json(self) -> dict[str, str]:
        """The shape kept in an alert."""
        return {
            "kind": str(self.kind),
            "effect_key": self.key,
            "external_ref": self.external_ref,
            "run": self.run_id,
            "words": self.words,
        }


def compare(
    entries: Sequence[Listed],
    receipts: Sequence[Receipt],
    *,
    since: datetime,
    until: datetime,
    whole: bool,
) -> list[Mismatch]:
    """The differences, in the order of the provider's book, then of ours.

    ``entries`` reach some way beyond ``since`` and ``until``, so that two clocks may differ: only
    what lies between is judged unknown or missing. ``whole`` False: the listing was cut short, so
    that nothing can be said to be missing.
    """
    by_key = {receipt.key: receipt for receipt in receipts}
    by_ref = {receipt.external_ref: receipt for receipt in receipts if receipt.external_ref}
    seen: defaultdict[str, list[Listed]] = defaultdict(list)
    found: list[Mismatch] = []
    for entry in entries:
        receipt = by_key.get(entry.idempotency_key) or by_ref.get(entry.external_ref)
        if receipt is not None:
            seen[receipt.key].append(entry)
        elif entry.at is None or since <= entry.at < until:
            found.append(_unknown(entry, "no intent of ours has its key or reference"))
    for key, mine in seen.items():
        found.extend(_judge(by_key[key], mine))
    if whole:
        found.extend(
            _mismatch(
                MismatchKind.MISSING, r, r.external_ref, "we hold a receipt, they have nothing"
            )
            for r in receipts
            if r.key not in seen and r.status is EffectStatus.APPLIED
            if r.settled_at is not None and since <= r.settled_at < until
        )
    return found


def _judge(receipt: Receipt, entries: Sequence[Listed]) -> Iterator[Mismatch]:
    references = list(dict.fromkeys(entry.external_ref for entry in entries))
    if len(entries) > 1:
        words = f"they have it {len(entries)} times: {', '.join(references)}"
        yield _mismatch(MismatchKind.DOUBLED, receipt, references[0], words)
    entry = entries[0]
    match receipt.status:
        case EffectStatus.APPLIED:
            words = _difference(receipt, entry)
            if words:
                yield _mismatch(MismatchKind.DIFFERENT, receipt, entry.external_ref, words)
        case EffectStatus.INTENDED | EffectStatus.IN_DOUBT:
            words = "we are in doubt, they have it: settle it as applied"
            yield _mismatch(MismatchKind.UNSETTLED, receipt, entry.external_ref, words)
        case _:
            words = f"they have it, we hold it for {receipt.status.replace('_', ' ')}"
            yield _mismatch(MismatchKind.UNKNOWN, receipt, entry.external_ref, words)


def _difference(receipt: Receipt, entry: Listed) -> str:
    if entry.request_hash and entry.request_hash != receipt.request_hash:
        return "they were sent another request than we intended"
    if receipt.external_ref and receipt.external_ref != entry.external_ref:
        return f"our receipt names {receipt.external_ref}"
    answer = receipt.response if isinstance(receipt.response, Mapping) else {}
    differing = [
        f"{name} is {value!r} there and {answer[name]!r} in our receipt"
        for name, value in entry.facts.items()
        if name in answer and answer[name] != value
    ]
    return "; ".join(differing)


def _unknown(entry: Listed, words: str) -> Mismatch:
    return Mismatch(
        kind=MismatchKind.UNKNOWN,
        key=entry.idempotency_key,
        external_ref=entry.external_ref,
        run_id="",
        words=words,
    )


def _mismatch(kind: MismatchKind, receipt: Receipt, reference: str, words: str) -> Mismatch:
    return Mismatch(
        kind=kind, key=receipt.key, external_ref=reference, run_id=receipt.run_id, words=words
    )
