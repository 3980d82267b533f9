"""What the running stack tells the other commands of the same checkout, and that it runs once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.embedded import ServerError
from config.servers import STATE_FILE, read_state, started_at


def lock(data_dir: Path) -> int:
    """Hold the data folder for this process's life; ServerError when another stack holds it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(data_dir / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ServerError(
            f"The data folder {data_dir} cannot be used ({error.strerror}): run as its owner,"
            " or set DATA_DIR to a folder of your own."
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        other = read_state(data_dir).get("pid", "still starting")
        raise ServerError(
            f"A stack already runs on {data_dir} (process {other}): use it, or stop it first."
        ) from None
    return handle


def write(data_dir: Path, state: Mapping[str, Any]) -> None:
    """Publish the state, whole or not at all, for this user only (it holds passwords)."""
    path = data_dir / STATE_FILE
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    pid = os.getpid()
    draft.write_text(json.dumps({"pid": pid, "pid_started": started_at(pid), **state}, indent=2))
    draft.rename(path)


def remove(data_dir: Path) -> None:
    """Withdraw the state."""
    (data_dir / STATE_FILE).unlink(missing_ok=True)
