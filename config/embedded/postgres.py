"""The embedded PostgreSQL: a durable cluster in a folder, on a Unix socket only."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from config.embedded.account import Account
from config.embedded.binaries import PostgresPrograms
from config.embedded.process import Child, ServerError, run, wait_for_end

USER = DATABASE = "orchestrator"
INITDB_SECONDS = 120.0
_SOCKET_PATH_LIMIT = 107
_SOCKET_NAME = ".s.PGSQL.5432"


@dataclass(frozen=True)
class Cluster:
    """A data folder, its socket folder and the account that owns both.

    ``statistics``: count statements (pg_stat_statements), which costs each of them some 10 us.
    """

    programs: PostgresPrograms
    data: Path
    socket: Path
    log: Path
    account: Account
    durable: bool = True
    statistics: bool = False

    @property
    def url(self) -> str:
        """The URL for libpq, psycopg and DATABASE_URL."""
        return f"postgresql://{USER}@/{DATABASE}?host={quote(str(self.socket), safe='')}"

    def server(self) -> Child:
        """The server as a child that is not started yet; SIGINT is its fast, clean shutdown."""
        return Child(
            name="PostgreSQL",
            argv=[str(self.programs.postgres), "-D", str(self.data), *self._options()],
            log=self.log,
            account=self.account,
            death_signal=signal.SIGINT,
            stop_signals=((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0)),
        )

    def prepare(self) -> None:
        """Make the folders and, once, the cluster; ServerError when what is there is not whole."""
        _make_socket_folder(self.socket, self.account)
        if not self.data.exists():
            self._initialise()
        self._check()
        self._outlive_predecessor()

    def answers(self) -> bool:
        """Ask the server once, and make the database on the first answer."""
        try:
            self._make_database()
        except psycopg.OperationalError:
            return False
        return True

    def tidy(self) -> None:
        """Remove the socket folder if it had to lie elsewhere; its data stay."""
        if self.socket.parent != self.data.parent:
            shutil.rmtree(self.socket, ignore_errors=True)

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "jit": "off",
            "max_wal_size": "2GB",
        }
        if self.statistics and self.programs.has_statistics():
            settings["shared_preload_libraries"] = "pg_stat_statements"
        durability = "on" if self.durable else "off"
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            settings[name] = durability
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _initialise(self) -> None:
        """Make the cluster beside its place, then move it: a killed initdb leaves nothing."""
        draft = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o700)
        self.account.own(draft)
        status = run(
            Child("initdb", self._initdb(draft), self.log, account=self.account), INITDB_SECONDS
        )
        if status != 0:
            raise ServerError(f"initdb could not make {self.data}; the reason is in {self.log}.")
        draft.rename(self.data)

    def _initdb(self, folder: Path) -> list[str]:
        options = [f"--username={USER}", "--auth-local=trust", "--auth-host=reject"]
        options += ["--encoding=UTF8", "--locale=C.UTF-8"]
        if self.programs.major >= 17:
            options += ["--locale-provider=builtin"]
        if not self.durable:
            options += ["--no-sync"]
        return [str(self.programs.initdb), "-D", str(folder), *options]

    def _check(self) -> None:
        version = self.data / "PG_VERSION"
        if not version.exists() or not (self.data / "global" / "pg_control").exists():
            raise ServerError(
                f"The data folder {self.data} is not a whole PostgreSQL cluster:"
                " move it away (a new one is made), or put a backup there."
            )
        found = version.read_text().strip()
        if found != str(self.programs.major):
            raise ServerError(
                f"The data folder {self.data} was written by PostgreSQL {found}, the programs in"
                f" {self.programs.folder} are {self.programs.major}: upgrade it with pg_upgrade,"
                " or move it away."
            )
        if (owner := self.data.stat().st_uid) != self.account.effective_uid:
            raise ServerError(
                f"The data folder {self.data} belongs to user id {owner}, not to the one that runs"
                f" this ({self.account.effective_uid}): run as its owner or as root, or chown it."
            )

    def _outlive_predecessor(self) -> None:
        """Wait for a server of a killed stack that is still shutting down on the same data."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            program = Path(f"/proc/{pid}/exe").resolve().name
        except (FileNotFoundError, ValueError, PermissionError):
            return
        if program == "postgres" and not wait_for_end(pid, 20.0):
            raise ServerError(
                f"A PostgreSQL server (process {pid}) already uses {self.data}: stop it first."
            )

    def _make_database(self) -> None:
        with psycopg.connect(
            self.url.replace(f"/{DATABASE}?", "/postgres?"), autocommit=True, connect_timeout=2
        ) as connection:
            known = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
            ).fetchone()
            if known is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")


def socket_folder(wanted: Path, data_dir: Path) -> Path:
    """``wanted`` if a socket's path fits there, else a short private folder of its own in /tmp."""
    if len(os.fsencode(wanted / _SOCKET_NAME)) <= _SOCKET_PATH_LIMIT:
        return wanted
    root = tempfile.gettempdir()
    return Path(root if len(root) < 60 else "/tmp") / f"orchestrator-{short_name(data_dir)}"  # noqa: S108


def short_name(path: Path) -> str:
    """Twelve characters that stand for a path, the same in every process."""
    return hashlib.blake2s(os.fsencode(path), digest_size=6).hexdigest()


def _make_socket_folder(folder: Path, account: Account) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    mine = status.st_uid in (os.geteuid(), account.effective_uid)
    if folder.is_symlink() or not mine:
        raise ServerError(
            f"The socket folder {folder} belongs to somebody else: remove it, or set TMPDIR."
        )
    folder.chmod(0o700)
    account.own(folder)
