"""The stack as a person starts it: a process, its words, and all its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from config.embedded.valkey import free_port
from config.env import BASE_DIR
from config.servers import read_state

PATIENCE = 90.0


class LiveStack:
    """One ``manage.py stack`` on a folder and ports of its own."""

    def __init__(self, data_dir: Path, **popen: Any) -> None:
        self.data_dir = data_dir
        self.web_port = free_port()
        self.environment = clean_environment(
            DATA_DIR=str(data_dir), WEB_PORT=str(self.web_port), FLOWER_PORT=str(free_port())
        )
        self._popen = popen
        self.words = data_dir.parent / f"{data_dir.name}.words"
        self.family: list[psutil.Process] = []

    def start(self, *arguments: str) -> LiveStack:
        with self.words.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "stack", *arguments],
                cwd=BASE_DIR,
                env=self.environment,
                **({"stdout": words, "stderr": words, "start_new_session": True} | self._popen),
            )
        return self

    def start_ready(self) -> LiveStack:
        self.start()
        self.wait_until(lambda: "READY" in self.said())
        self.family = [self.process_of(self.process.pid), *self.descendants()]
        return self

    def said(self) -> str:
        return self.words.read_text(errors="replace")

    def log(self) -> str:
        return (self.data_dir / "logs" / "stack.log").read_text()

    def state(self) -> dict[str, Any]:
        return read_state(self.data_dir)

    def pid_of(self, name: str) -> int:
        return int(self.state()["processes"][name])

    def descendants(self) -> list[psutil.Process]:
        return self.process_of(self.process.pid).children(recursive=True)

    @staticmethod
    def process_of(pid: int) -> psutil.Process:
        return psutil.Process(pid)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the stack ended ({self.process.returncode}): {self.said()}{self.log()}"
                )
            assert time.monotonic() < until, f"not within {PATIENCE} s: {self.said()}"
            time.sleep(0.05)  # another process's words and files: nothing to wait on

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of the same checkout while the stack runs, or after it."""
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=BASE_DIR,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def survivors(self, family: list[psutil.Process] | None = None) -> list[psutil.Process]:
        """Who of the family is left half a minute after the end was asked for."""
        _, alive = psutil.wait_procs(self.family if family is None else family, timeout=30)
        return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        """Clean up after a test that failed half way."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def clean_environment(**more: str) -> dict[str, str]:
    """A person's shell: none of the settings that the test session itself runs with."""
    ours = ("DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE", "DATA_DIR", "TASK_EVENTS")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {n: v for n, v in kept.items() if not n.startswith(("PYTEST", "COV_"))} | more
