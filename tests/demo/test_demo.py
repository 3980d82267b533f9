"""The demo as a newcomer runs it: from nothing to a finished run, and nothing stays behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import BASE_DIR

pytestmark = pytest.mark.stack


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def processes_of(folder: Path) -> list[str]:
    """Command lines and surroundings that name the data folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if process.name != str(os.getpid()) and str(folder).encode() in text:
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
    return found


@pytest.mark.timeout(180)
def test_once_it_runs_a_ticket_to_its_end_without_anybody_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE")
    }
    surroundings |= {
        "DATA_DIR": str(tmp_path),
        "WEB_PORT": str(a_free_port()),
        "FLOWER_PORT": str(a_free_port()),
        "ONCE": "1",
    }

    done = subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "demo"],
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for words in (
        "Classify the ticket",
        "waiting     approval by role:support_lead",
        "approves by itself",
        "approved by system:demo",
        "Result: succeeded",
        "All together",
    ):
        assert words in done.stdout, done.stdout
    assert processes_of(tmp_path) == []
