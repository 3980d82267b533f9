"""Real servers, real workers: everything that a drill starts, ends and starts again."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kombu.pools
import orjson
import psutil
import psycopg
import redis
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connections

from config import embedded
from config.celery import app
from config.embedded.process import Child, stop_together
from config.env import BASE_DIR
from config.stack.preload import aim
from orchestrator import engine
from orchestrator.tasks import post
from tests.chaos.app.tools import LEDGER
from tests.stack.live import clean_environment

PATIENCE_S = 60.0
WORKERS = ("worker-engine", "worker-tool", "worker-agent")
EVERYTHING = (*WORKERS, "pulse")


@dataclass
class Process:
    """One part of the product that was started; ``name`` is unique among all starts."""

    part: str
    name: str
    pid: int
    pidfd: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def wait(self, seconds: float = PATIENCE_S) -> None:
        """Return when it has ended."""
        ended, _, _ = select.select([self.pidfd], [], [], seconds)
        assert ended, f"{self.name} did not end within {seconds} s"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing if it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def pool(self) -> list[psutil.Process]:
        """The children of a worker's pool."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children()
        return []


class Fleet:
    """The processes of the product, forked by a nursery. Everything ends with ``close``."""

    def __init__(
        self,
        logs: Path,
        *,
        database_url: str,
        broker_url: str,
        lease_s: float,
        stale_s: float = 2.0,
    ) -> None:
        self._address = f"orchestrator-chaos-{os.getpid()}-{random.randrange(10**9)}"
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notices.bind("\0" + self._address)
        self._announced: set[str] = set()
        self._count = 0
        self.logs = logs
        self.processes: list[Process] = []
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery", str(logs), str(os.getpid())],
            cwd=BASE_DIR,
            env=clean_environment(
                DJANGO_SETTINGS_MODULE="config.settings.test",
                DATABASE_URL=database_url,
                BROKER_URL=broker_url,
                EXTRA_APPS="tests.chaos.app",
                LEASE_SECONDS=str(lease_s),
                RENEW_SECONDS=str(lease_s / 3),
                TEST_STALE_SECONDS=str(stale_s),
                DATA_DIR=str(logs.parent / "data"),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(logs / "nursery.log").open("ab"),
            start_new_session=True,
        )
        self._born = False

    def start(self, part: str, **how: Any) -> Process:
        """Start a part; it may not serve yet. ``how``: see ``nursery.Order``."""
        if not self._born:
            assert self._answer() == "ready"
            self._born = True
        self._count += 1
        name = f"{part}#{self._count}"
        order = {"part": part, "name": name, "notify": f"@{self._address}"} | how
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(orjson.dumps(order) + b"\n")
        self._nursery.stdin.flush()
        pid = int(self._answer())
        process = Process(part, name, pid, os.pidfd_open(pid))
        self.processes.append(process)
        return process

    def _answer(self) -> str:
        assert self._nursery.stdout is not None
        line = self._nursery.stdout.readline().decode().strip()
        log = self.logs / "nursery.log"
        assert line, f"the nursery ended:\n{log.read_text()[-3000:]}"
        return line

    def start_ready(self, parts: Sequence[str] = EVERYTHING, **how: Any) -> None:
        """Start these parts and return when each worker consumes; ``how`` as for ``start``."""
        started = [self.start(part, **how) for part in parts]
        self.await_ready([p for p in started if p.part != "pulse"])

    def await_ready(self, wanted: Sequence[Process], seconds: float = PATIENCE_S) -> None:
        """Return when each of these has said READY."""
        until = time.monotonic() + seconds
        while missing := {p.name for p in wanted} - self._announced:
            left = until - time.monotonic()
            dead = [p.name for p in wanted if not p.alive]
            assert not dead, f"ended before they were ready: {dead}\n{tail(self.logs)}"
            assert left > 0, f"not ready: {missing}\n{tail(self.logs)}"
            self.listen(min(left, 0.5))

    def listen(self, seconds: float) -> None:
        """Wait for an announcement, at most so long."""
        if not select.select([self._notices], [], [], seconds)[0]:
            return
        fields = dict(
            line.partition("=")[::2] for line in self._notices.recv(4096).decode().splitlines()
        )
        self._announced.add(fields.get("X_PROCESS", ""))

    def until(
        self,
        holds: Callable[[], bool],
        seconds: float = PATIENCE_S,
        why: Callable[[], str] = lambda: "",
    ) -> None:
        """Return when it holds: a question to other processes, asked again and again."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"not within {seconds:.0f} s: {why()}"
            self.listen(0.05)

    def alive(self, *parts: str) -> list[Process]:
        """The running processes of these parts (all, when none is named)."""
        return [p for p in self.processes if p.alive and (not parts or p.part in parts)]

    def stop(self, *parts: str) -> None:
        """End these parts in an orderly way, all when none is named."""
        going = self.alive(*parts)
        for process in going:
            process.signal(signal.SIGTERM)
        for process in going:
            process.wait()

    def stop_one(self, process: Process) -> None:
        """End this one in an orderly way."""
        process.signal(signal.SIGTERM)
        process.wait()

    def kill(self, process: Process) -> None:
        """kill -9, and return when it has ended."""
        process.signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End everything; nothing is left behind."""
        family = [psutil.Process(p.pid) for p in self.alive()]
        for member in list(family):
            with suppress(psutil.NoSuchProcess):
                family += member.children(recursive=True)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        try:
            self._nursery.wait(15)
        finally:
            self._nursery.kill()
            self._nursery.wait()
            self._nursery.stdout.close()
            self._notices.close()
            for process in self.processes:
                os.close(process.pidfd)
        _, left = psutil.wait_procs(family, timeout=10)
        left = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"left behind: {left}"


@dataclass
class World:
    """A PostgreSQL, a Valkey and a fleet of their own, durable, which a drill may hurt.

    Within ``world(...)`` this process's Django and Celery talk to them.
    """

    folder: Path
    lease_s: float = 3.0
    stale_s: float = 2.0
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        self._cluster = embedded.cluster(self.folder)
        self._broker = embedded.broker(self.folder)
        self._postgres: Child | None = None
        self._valkey: Child | None = None

    @property
    def urls(self) -> dict[str, str]:
        """DATABASE_URL and BROKER_URL."""
        return {"DATABASE_URL": self._cluster.url, "BROKER_URL": self._broker.url}

    @property
    def postgres_socket(self) -> Path:
        """Where a proxy of a drill finds the server."""
        return self._cluster.socket / ".s.PGSQL.5432"

    @property
    def broker_port(self) -> int:
        """The broker's port on loopback."""
        return self._broker.port

    def start_postgres(self) -> None:
        """Start PostgreSQL on its data and return when it answers."""
        self._cluster.prepare()
        self._postgres = self._cluster.server()
        self._postgres.start()
        embedded.wait_ready(self._cluster, self._postgres)

    def stop_postgres(self) -> None:
        """As by ``pg_ctl stop -m immediate``: no checkpoint, every connection is cut."""
        assert self._postgres is not None
        self._postgres.signal(signal.SIGQUIT)
        assert self._postgres.wait(20), "PostgreSQL did not stop"
        self._postgres.kill()

    @property
    def postgres_programs(self) -> Path:
        """The folder of the server's own programs."""
        return self._cluster.programs.folder

    def replace_postgres(self, backup: Path) -> None:
        """Stop it; this copy of a data folder takes the place of its own, and is started."""
        self.stop_postgres()
        shutil.rmtree(self._cluster.data)
        shutil.move(backup, self._cluster.data)
        for path in (self._cluster.data, *self._cluster.data.rglob("*")):
            self._cluster.account.own(path)
        self.start_postgres()

    def start_broker(self) -> None:
        """Start the broker on the same port and return when it answers."""
        self._broker.prepare()
        self._valkey = self._broker.server()
        self._valkey.start()
        embedded.wait_ready(self._broker, self._valkey)

    def kill_broker(self) -> None:
        """kill -9; its append-only file stays."""
        assert self._valkey is not None
        self._valkey.kill()

    def wipe_broker(self) -> None:
        """kill -9, and its data are gone."""
        self.kill_broker()
        shutil.rmtree(self._broker.data)

    def flush_broker(self) -> None:
        """FLUSHALL: every queue, every chord counter, every binding is gone."""
        with self.redis() as client:
            client.flushall()

    def redis(self) -> redis.Redis:
        """A client of the broker's server."""
        return redis.Redis.from_url(self._broker.url)

    def prepare_database(self) -> None:
        """Commit times are kept (the checker reads them); tables, and the ledger."""
        with psycopg.connect(self._cluster.url, autocommit=True) as database:
            database.execute("ALTER SYSTEM SET track_commit_timestamp = on")
        self.stop_postgres()
        self.start_postgres()
        call_command("migrate", verbosity=0)
        with psycopg.connect(self._cluster.url, autocommit=True) as database:
            database.execute(LEDGER)

    def open(self) -> None:
        """Start both servers."""
        self.start_broker()
        self.start_postgres()

    def close(self) -> None:
        """End the fleet, then the servers."""
        try:
            if hasattr(self, "fleet"):
                self.fleet.close()
        finally:
            stop_together([c for c in (self._postgres, self._valkey) if c is not None])
            self._cluster.tidy()

    def launch(self) -> Fleet:
        """The fleet, with nothing started in it."""
        logs = self.folder / "logs"
        self.fleet = Fleet(
            logs,
            database_url=self._cluster.url,
            broker_url=self._broker.url,
            lease_s=self.lease_s,
            stale_s=self.stale_s,
        )
        return self.fleet


@contextmanager
def world(folder: Path, *, lease_s: float = 3.0, stale_s: float = 2.0) -> Iterator[World]:
    """A world of our own for the length of the block; call it from the main thread."""
    mine = World(folder, lease_s, stale_s)
    try:
        mine.launch()  # imports while the servers start
        mine.open()
        with aimed_at(mine.urls):
            mine.prepare_database()
            yield mine
    finally:
        mine.close()


@contextmanager
def aimed_at(urls: dict[str, str]) -> Iterator[None]:
    """This process's Django and Celery talk to these servers; to the former ones afterwards."""
    database = dict(settings.DATABASES["default"])
    broker = app.conf.broker_url
    _forget()
    aim(urls)
    try:
        yield
    finally:
        _forget()
        aim({"BROKER_URL": broker, "DATABASE_URL": urls["DATABASE_URL"]})
        settings.DATABASES["default"].update(database)


def _forget() -> None:
    """Nothing that was read or opened over there may be used here."""
    connections["default"].close()
    ContentType.objects.clear_cache()
    engine.compiled.cache_clear()
    kombu.pools.reset()
    app._pool = None
    app._local.__dict__.pop("backend", None)
    app._backend_cache = None
    app.amqp._producer_pool = None
    post.forget()


def tail(logs: Path, lines: int = 15) -> str:
    """The ends of all logs, for a message."""
    return "\n".join(
        f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
        for log in sorted(logs.glob("*.log"))
    )
