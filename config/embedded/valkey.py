"""The embedded Valkey: on loopback with a password, append-only file on, never evicting."""

from __future__ import annotations

import secrets
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

import redis

from config.embedded.account import Account
from config.embedded.process import Child


@dataclass(frozen=True)
class Broker:
    """A data folder, a free port of loopback and the account that runs the server."""

    program: Path
    data: Path
    log: Path
    account: Account
    durable: bool = True
    port: int = field(default_factory=lambda: free_port())
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def url(self) -> str:
        """The URL for redis-py, kombu and BROKER_URL."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def server(self) -> Child:
        """The server as a child that is not started yet; its password stands in a private file."""
        return Child(
            name="Valkey",
            argv=[str(self.program), str(self._config)],
            log=self.log,
            account=self.account,
        )

    def prepare(self) -> None:
        """Make the folder and write the configuration."""
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": f'"{self.data}"',
            "databases": 64,
            "save": '""',
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        self._config.unlink(missing_ok=True)
        self._config.touch(mode=0o600)
        self._config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        self._own_everything()

    def answers(self) -> bool:
        """Ask the server once."""
        client = redis.Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=2)
        with client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def tidy(self) -> None:
        """Nothing of it lies outside the data folder."""

    @property
    def _config(self) -> Path:
        return self.data / "valkey.conf"

    def _own_everything(self) -> None:
        for path in (self.data, *self.data.rglob("*")):
            self.account.own(path)


def free_port(host: str = "127.0.0.1") -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def copy_program(program: Path, folder: Path) -> Path:
    """A copy of a single-file program in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(program, folder / program.name))
