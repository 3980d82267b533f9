"""Which processes make up the product, and how each one is started, watched and stopped."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import uvicorn
from django.core.management import call_command

from config.celery import app
from config.env import Environment
from orchestrator.core.routing import queue_type

FLOWER_USER = "operator"

# A worker may finish its steps; then it hands its messages back; then the lease does it.
_WORKER_STOP = ((signal.SIGTERM, 12.0), (signal.SIGQUIT, 5.0))
_WEB_STOP = ((signal.SIGTERM, 8.0),)
_PLAIN_STOP = ((signal.SIGTERM, 5.0),)


@dataclass(frozen=True)
class Part:
    """One process of the product: a function of this program that runs until it is told to stop.

    It is ready when it says so (``announces``), when its ``port`` accepts, or, with neither, when
    it has been started.
    """

    name: str
    run: Callable[[], int | None]
    announces: bool = False
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signals: Sequence[tuple[signal.Signals, float]] = _PLAIN_STOP


@dataclass(frozen=True)
class WorkerGroup:
    """One Celery worker: the types of queues that it serves, and its pool."""

    name: str
    types: tuple[str, ...]
    options: tuple[str, ...]


# The engine's queues only move rows: threads with a small prefetch. Tools may hang and are ended
# with their process; agents wait for models.
WORKER_GROUPS = (
    WorkerGroup(
        "engine",
        ("engine", "approval", "subworkflow"),
        ("--pool=threads", "--concurrency=4", "--prefetch-multiplier=4"),
    ),
    WorkerGroup("tool", ("tool", "compensation"), ("--pool=prefork", "--concurrency=4")),
    WorkerGroup("agent", ("agent",), ("--pool=prefork", "--concurrency=2")),
)


def all_parts(env: Environment, flower_password: str) -> list[Part]:
    """Every process beside the servers, in the order in which they are started."""
    return [
        web(env),
        *(worker(group, env.queues) for group in WORKER_GROUPS),
        Part("pulse", _manage("pulse")),
        Part("beat", _celery("beat", "--loglevel=WARNING", "--pidfile="), announces=True),
        flower(env, flower_password),
    ]


def web(env: Environment) -> Part:
    """The API and the console under uvicorn."""

    def serve() -> None:
        uvicorn.run(
            "config.asgi:application",
            host=env.web_host,
            port=env.web_port,
            lifespan="off",
            ws="websockets-sansio",
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=5,  # an open WebSocket would hold the exit
        )

    return Part("web", serve, port=env.web_port, stop_signals=_WEB_STOP)


def worker(group: WorkerGroup, queues: Sequence[str]) -> Part:
    """One Celery worker for all queues of its group's types."""
    mine = ",".join(queue for queue in queues if queue_type(queue) in group.types)
    options = [f"--hostname={group.name}@%h", f"--queues={mine}", *group.options]
    options += ["--without-gossip", "--without-mingle", "--loglevel=WARNING"]
    return Part(
        f"worker-{group.name}",
        _celery("worker", *options),
        announces=True,
        stop_signals=_WORKER_STOP,
    )


def flower(env: Environment, password: str) -> Part:
    """Flower: it looks and never touches; loopback only, since /metrics asks for no password."""
    options = ["--address=127.0.0.1", f"--port={env.flower_port}", "--read_only=True"]
    options += ["--enable_events=False", "--purge_offline_workers=60", "--logging=warning"]
    return Part(
        "flower",
        _celery("flower", *options),
        port=env.flower_port,
        env={"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"},
    )


def migrate() -> Part:
    """Brings the tables up to date, holds everything if that is wanted, and ends."""

    def run() -> None:
        call_command("migrate", "--no-input", "--verbosity=1")
        call_command("hold", "--boot")

    return Part("migrate", run)


def check_port_free(host: str, port: int, variable: str) -> str | None:
    """A sentence when somebody listens there already, else None."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return (
                f"Port {port} on {host} cannot be used ({error.strerror}):"
                f" stop the program that holds it, or set {variable} to another port."
            )
    return None


def accepts(port: int) -> bool:
    """Whether a server on this machine accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _manage(*words: str) -> Callable[[], None]:
    def run() -> None:
        call_command(*words)

    return run


def _celery(*words: str) -> Callable[[], int | None]:
    return partial(app.start, list(words))
