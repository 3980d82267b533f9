"""``file.read`` and ``file.write``: files beneath the tenant's own folder."""

from __future__ import annotations

import base64 as base64_text
import binascii
import hashlib
from typing import Any

from orchestrator.adapters import files
from orchestrator.authoring import Permanent, ToolContext, tool


@tool("file.read", idempotent=True)
def read(ctx: ToolContext, path: str) -> dict[str, Any]:
    """Read a file of at most 1 MiB and answer ``{path, size, sha256, text, base64}``.

    ``text`` where it is UTF-8 without NUL, else ``base64``; the other one is null.
    """
    content = files.read(tenant=ctx.tenant, path=path)
    return {**_described(path, content), **_shown(content)}


def find_written(
    ctx: ToolContext, path: str, text: str | None = None, base64: str | None = None
) -> dict[str, Any] | None:
    """The receipt if the file holds the content to the last byte; None if it does not.

    What an attempt that died half way left beside it is removed first, so that it can no longer
    take the file's place.
    """
    content = _content(text, base64)
    files.drop_drafts(tenant=ctx.tenant, path=path, mark=_mark(ctx))
    there = files.digest(tenant=ctx.tenant, path=path)
    return _receipt(path, content) if there == files.describe(path, content).sha256 else None


@tool("file.write", idempotent=True, reconcile=find_written)
def write(
    ctx: ToolContext, path: str, text: str | None = None, base64: str | None = None
) -> dict[str, Any]:
    """Write ``text`` (UTF-8) or ``base64`` and answer ``{path, size, sha256, external_ref}``.

    Folders are made, an old file is replaced as a whole. ``external_ref`` is ``sha256:`` and the
    content's digest.
    """
    content = _content(text, base64)
    files.write(tenant=ctx.tenant, path=path, content=content, mark=_mark(ctx))
    return _receipt(path, content)


def _mark(ctx: ToolContext) -> str:
    """What the drafts of one effect have in common; empty without an effect."""
    key = ctx.idempotency_key
    return "" if key is None else hashlib.sha256(key.encode()).hexdigest()[:24]


def _receipt(path: str, content: bytes) -> dict[str, Any]:
    described = _described(path, content)
    return {**described, "external_ref": f"sha256:{described['sha256']}"}


def _content(text: str | None, base64: str | None) -> bytes:
    if (text is None) == (base64 is None):
        raise Permanent("give text or base64, exactly one of them")
    if text is not None:
        return text.encode()
    try:
        return base64_text.b64decode(base64 or "", validate=True)
    except binascii.Error as error:
        raise Permanent(f"base64: {error}") from error


def _described(path: str, content: bytes) -> dict[str, Any]:
    stored = files.describe(path, content)
    return {"path": stored.path, "size": stored.size, "sha256": stored.sha256}


def _shown(content: bytes) -> dict[str, str | None]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return {"text": None, "base64": base64_text.b64encode(content).decode("ascii")}
    return {"text": text, "base64": None}
