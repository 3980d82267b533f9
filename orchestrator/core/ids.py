"""Identifiers: UUIDv7 built from an instant and random bits that the caller brings."""

from __future__ import annotations

from uuid import UUID

_RANDOM_BYTES = 10


def uuid7(*, unix_ms: int, random: bytes) -> UUID:
    """A UUIDv7 (RFC 9562, section 5.7): sorts by birth. ``random`` is ten random bytes."""
    if len(random) != _RANDOM_BYTES:
        raise ValueError(f"uuid7 needs {_RANDOM_BYTES} random bytes, got {len(random)}")
    head = unix_ms.to_bytes(6, "big")
    version = bytes((0x70 | (random[0] & 0x0F), random[1]))
    variant = bytes((0x80 | (random[2] & 0x3F),)) + random[3:]
    return UUID(bytes=head + version + variant)
