"""Worker processes under the bench: the product's own layout, and plain Celery's."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.options import OTHER_QUEUE
from bench.plain import Layout
from config.embedded import Child
from config.env import BASE_DIR, QUEUE_TYPES, environment
from config.stack import parts
from config.stack.forked import ForkedChild
from config.stack.preload import preload

START_SECONDS = 60.0
_STOP = ((signal.SIGTERM, 6.0), (signal.SIGQUIT, 3.0))
TOOL_WORKERS = sum("tool" in group.types for group in parts.WORKER_GROUPS)
"""How many workers of the product serve the tool queue: plain Celery gets as many."""


class Crew:
    """Starts processes, knows when they are ready, and ends them with the block."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        self._running = running
        self._address = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind("\0" + self._address)
        running.callback(self._ready.close)

    def product(self) -> dict[str, Child]:
        """The product's workers, copies of this process as in the stack: call it early."""
        preload()
        wanted = [parts.worker(group, QUEUE_TYPES) for group in parts.WORKER_GROUPS]
        children = {
            part.name: self._start(
                ForkedChild(
                    name=part.name,
                    argv=(),
                    log=self._folder / f"{part.name}.log",
                    run=part.run,
                    stop_signals=_STOP,
                )
            )
            for part in wanted
        }
        self._await(children)
        return children

    def product_other(self) -> dict[str, Child]:
        """A worker of the product like that of the tools, for the other queue alone."""
        like = next(group for group in parts.WORKER_GROUPS if "tool" in group.types)
        part = parts.worker(parts.WorkerGroup("other", ("tool",), like.options), [OTHER_QUEUE])
        name, log = "worker-other", self._folder / "worker-other.log"
        child = ForkedChild(name=name, argv=(), log=log, run=part.run, stop_signals=_STOP)
        children = {name: self._start(child)}
        self._await(children)
        return children

    def web(self) -> dict[str, Child]:
        """The product's web process, a copy of this one as in the stack."""
        part = parts.web(environment())
        log = self._folder / "web.log"
        child = ForkedChild(name=part.name, argv=(), log=log, run=part.run, stop_signals=_STOP)
        self._start(child)
        self._await_port(child, environment().web_port)
        return {part.name: child}

    def plain_web(self, port: int) -> dict[str, Child]:
        """Plain Celery's web process."""
        argv = [sys.executable, "-m", "bench.plain_web", str(port)]
        child = self._program("plain-web", argv)
        self._await_port(child, port)
        return {child.name: child}

    def kept_up(self) -> Child:
        """One more worker of the product for the tool queue; its keeper starts it again when it
        dies. The worker is the keeper's only child."""
        name = "worker-kept"
        child = self._program(name, [sys.executable, str(BASE_DIR / "manage.py"), "keep_worker"])
        self._await({name: child})
        return child

    def plain_other(self, layouts: Sequence[Layout]) -> dict[str, Child]:
        """One plain worker of each layout for its other queue."""
        children = {
            layout.other_queue: self._program(
                layout.other_queue, _plain_argv(layout, layout.other_queue, layout.other_queue)
            )
            for layout in layouts
        }
        self._await(children)
        return children

    def client(self, shape: str, count: int) -> subprocess.Popen[str]:
        """A process that starts ``count`` runs once a line is written to it; it says when it is
        ready, and when it is done, in a line each."""
        argv = [sys.executable, str(BASE_DIR / "manage.py"), "start_runs", shape, str(count)]
        client = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=BASE_DIR
        )
        self._running.callback(client.kill)
        return client

    def pulse(self) -> Child:
        """The loop of the sweeps, as in the product."""
        return self._program("pulse", [sys.executable, str(BASE_DIR / "manage.py"), "pulse"])

    def plain(self, layouts: Sequence[Layout]) -> dict[str, Child]:
        """As many plain workers of each layout as the product has for the tool queue."""
        children = {
            name: self._program(name, _plain_argv(layout, name, layout.queue))
            for layout in layouts
            for name in plain_names(layout)
        }
        self._await(children)
        return children

    def _program(self, name: str, argv: Sequence[str]) -> Child:
        log = self._folder / f"{name}.log"
        return self._start(Child(name=name, argv=argv, log=log, stop_signals=_STOP))

    def _start(self, child: Child) -> Child:
        os.environ |= {"NOTIFY_SOCKET": "@" + self._address, "STACK_PROCESS": child.name}
        child.start()
        self._running.callback(child.stop)
        return child

    def _await_port(self, child: Child, port: int) -> None:
        until = time.monotonic() + START_SECONDS
        while not parts.accepts(port):
            if not child.alive or time.monotonic() > until:
                raise RuntimeError(f"{child.name} does not start: {child.last_words()}")
            time.sleep(0.05)

    def _await(self, children: Mapping[str, Child]) -> None:
        waiting = set(children)
        until = time.monotonic() + START_SECONDS
        self._ready.settimeout(0.2)
        while waiting:
            for name in waiting:
                if not children[name].alive or time.monotonic() > until:
                    words = children[name].last_words() or "nothing in its log"
                    raise RuntimeError(f"{name} does not start: {words}")
            try:
                notice = self._ready.recv(4096).decode()
            except TimeoutError:
                continue
            said = dict(line.partition("=")[::2] for line in notice.splitlines())
            waiting.discard(said.get("X_PROCESS", ""))


def plain_names(layout: Layout) -> list[str]:
    """The node names of the plain workers of a layout, without the host."""
    return [f"{layout.queue}-{number}" for number in range(TOOL_WORKERS)]


def tool_names() -> list[str]:
    """The node names of the product's workers of the tool queue, without the host."""
    return [group.name for group in parts.WORKER_GROUPS if "tool" in group.types]


def _plain_argv(layout: Layout, name: str, queue: str) -> list[str]:
    words = [sys.executable, "-m", "celery", "-A", "bench.plain", "worker"]
    words += [f"--hostname={name}@%h", f"--queues={queue}", f"--pool={layout.pool}"]
    words += [f"--concurrency={layout.concurrency}", f"--prefetch-multiplier={layout.prefetch}"]
    return [*words, "--without-gossip", "--without-mingle", "--loglevel=WARNING"]
