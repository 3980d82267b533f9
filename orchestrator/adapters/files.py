"""Files of tools: beneath one folder a tenant, no links followed, written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from django.conf import settings

from orchestrator.authoring import Permanent

MAX_FILE_BYTES = 1024 * 1024
MAX_PARTS = 32
_LINK_ERRORS = frozenset({errno.ELOOP, errno.EMLINK})  # Linux and macOS; FreeBSD
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """What lies at a path: its size in bytes and the SHA-256 of its content."""

    path: str
    size: int
    sha256: str


def read(*, tenant: str, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file; ``Permanent`` when there is none, or it is too large."""
    folders, name = _parts(path)
    with _open_folder(tenant, folders, path=path, create=False) as folder, _named(path):
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Permanent(f"path: {path} is no regular file")
            content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _TooLarge(f"path: {path} holds more than {max_bytes:,} bytes")
    return content


def write(*, tenant: str, path: str, content: bytes, mark: str = "") -> StoredFile:
    """Put ``content`` at ``path``, making folders as needed; a reader sees the old or the new.

    ``mark`` (letters and digits) names the draft beside it, for ``drop_drafts``.
    """
    if len(content) > MAX_FILE_BYTES:
        raise Permanent(f"path: {path}: more than {MAX_FILE_BYTES:,} bytes to write")
    folders, name = _parts(path)
    with _open_folder(tenant, folders, path=path, create=True) as folder, _named(path):
        _replace(folder, name, content, mark=mark)
    return describe(path, content)


def digest(*, tenant: str, path: str) -> str | None:
    """The SHA-256 of the file at ``path``; None when there is no file, or it is too large to be
    ours. ``Permanent`` when the path leads elsewhere."""
    _parts(path)
    try:
        return describe(path, read(tenant=tenant, path=path)).sha256
    except Permanent as error:
        if isinstance(error.__cause__, FileNotFoundError) or isinstance(error, _TooLarge):
            return None
        raise


def drop_drafts(*, tenant: str, path: str, mark: str) -> int:
    """Remove what writers with this ``mark`` left beside ``path``; how many drafts.

    A writer that still lives fails at its rename, so that it can no longer replace the file.
    """
    folders, _ = _parts(path)
    dropped = 0
    with _open_folder(tenant, folders, path=path, create=True) as folder:
        for name in os.listdir(folder):  # noqa: PTH208 - a descriptor, not a path
            if mark and name.startswith(f".{mark}-") and name.endswith(".part"):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                    dropped += 1
    return dropped


class _TooLarge(Permanent):
    """The file holds more than a tool may read."""


def describe(path: str, content: bytes) -> StoredFile:
    """Size and digest of a file's content."""
    return StoredFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _replace(folder: int, name: str, content: bytes, *, mark: str) -> None:
    # Each writer has a draft of its own: one that was thought dead can never mix with another.
    draft = f".{mark}-{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o640, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        raise


def _parts(path: str) -> tuple[list[str], str]:
    parts = path.split("/")
    if "\x00" in path or "\\" in path or len(parts) > MAX_PARTS:
        raise Permanent(f"path: {path[:100]!r} is no path; write it like reports/2030/may.csv")
    if any(part in ("", ".", "..") or len(part.encode()) > 200 for part in parts):
        raise Permanent(
            f"path: {path[:100]!r} must lead down from the tenant's folder, "
            "without empty, '.' and '..' parts"
        )
    return parts[:-1], parts[-1]


@contextmanager
def _open_folder(tenant: str, folders: list[str], *, path: str, create: bool) -> Iterator[int]:
    """A descriptor of the folder, reached from the root one name at a time.

    Each name is opened relative to the descriptor before it and never through a link, so that a
    link that is put there in the meantime leads nowhere.
    """
    root = _root(create=create)
    descriptor = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    try:
        with _named(path):
            for name in [_tenant_folder(tenant), *folders]:
                inner = _enter(descriptor, name, create=create)
                os.close(descriptor)
                descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _enter(folder: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, 0o750, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn what the system says about a name into what the author wrote."""
    try:
        yield
    except FileNotFoundError as error:
        raise Permanent(f"path: there is no {path}") from error
    except (NotADirectoryError, IsADirectoryError) as error:
        raise Permanent(f"path: a part of {path} is not what it should be: {error}") from error
    except OSError as error:
        if error.errno in _LINK_ERRORS:
            raise Permanent(f"path: {path} leads through a link") from error
        raise


def _root(*, create: bool) -> Path:
    configured = getattr(settings, "ORCHESTRATOR", {}).get("FILES_ROOT")
    if not configured:
        raise Permanent("no folder for files is configured (setting FILES_ROOT)")
    root = Path(configured)
    if create:
        root.mkdir(mode=0o750, parents=True, exist_ok=True)
    if not root.is_dir():
        raise Permanent("path: no file was ever written here")
    return root


def _tenant_folder(tenant: str) -> str:
    return quote(tenant, safe="").replace(".", "%2E") or "%"
