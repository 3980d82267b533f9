"""A pytest plugin: one real PostgreSQL and one real Valkey for a session, before settings are read.

Loaded by ``-p tests.servers`` (pyproject.toml). The process that was started by hand, or xdist's
controller, runs the servers; its workers inherit the URLs. Each worker has its own database (made
by pytest-django) and its own broker database. With DATABASE_URL and BROKER_URL set, those are used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config import embedded

FOLDER = Path(__file__).resolve().parent.parent / ".data" / "tests"
_running = ExitStack()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Have both servers up before pytest-django imports the settings."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        _take_own_broker_database(int(worker.removeprefix("gw")))
    elif not _only_asks(early_config):
        _start_what_is_missing()
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Stop what this process started, also after Ctrl-C; a kill -9 is the kernel's affair."""
    _running.close()


def _only_asks(config: pytest.Config) -> bool:
    return bool(config.known_args_namespace.help or config.known_args_namespace.version)


def _start_what_is_missing() -> None:
    folder = _session_folder()
    durable = os.environ.get("TEST_DURABLE") == "1"
    if "DATABASE_URL" not in os.environ:
        base = embedded.cluster(folder, durable=durable)
        embedded.wait_ready(base, embedded.start(base, _running))
        os.environ["DATABASE_URL"] = base.url
    if "BROKER_URL" not in os.environ:
        broker = embedded.broker(folder, durable=durable)
        embedded.wait_ready(broker, embedded.start(broker, _running))
        os.environ["BROKER_URL"] = broker.url


def _session_folder() -> Path:
    """A folder of this session's own; those of sessions that were killed are removed."""
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in FOLDER.iterdir():
        if left.is_dir() and (lock := _lock(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    mine = FOLDER / str(os.getpid())
    mine.mkdir(exist_ok=True)
    lock = _lock(mine)
    assert lock is not None
    _running.callback(os.close, lock)
    _running.callback(shutil.rmtree, mine, ignore_errors=True)
    return mine


def _lock(folder: Path) -> int | None:
    """An open lock on a folder, None if somebody holds it. The kernel frees it at any death."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _take_own_broker_database(number: int) -> None:
    """Worker gwN uses broker database N + 1: 0 is the session that runs without xdist."""
    url = urlsplit(os.environ["BROKER_URL"])
    os.environ["BROKER_URL"] = url._replace(path=f"/{number + 1}").geturl()
