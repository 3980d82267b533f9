"""Which PostgreSQL and which broker this process talks to.

The environment wins; else the stack that runs in this checkout; else the address where the stack
would be, so that a command that needs it can say that nothing answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from config.env import Environment

STATE_FILE = "stack.json"
_CLIENT_KEYS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD"} | {
    "host": "HOST",
    "port": "PORT",
}


@dataclass(frozen=True)
class Servers:
    """Two URLs, and whether anybody said that a server listens there."""

    database_url: str
    broker_url: str
    known: bool


def find_servers(env: Environment) -> Servers:
    """The servers of this process, by environment, running stack, or where it would be."""
    running = read_state(env.data_dir)
    database = env.database_url or running.get("database_url")
    broker = env.broker_url or running.get("broker_url")
    return Servers(
        database_url=database or f"postgresql:///orchestrator?host={env.data_dir}/no-stack-runs",
        broker_url=broker or "redis://127.0.0.1:6379/0",
        known=bool(database and broker),
    )


def read_state(data_dir: Path) -> dict[str, Any]:
    """What the running stack wrote about itself; empty when none runs."""
    try:
        state = json.loads((data_dir / STATE_FILE).read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    if not isinstance(state, dict) or started_at(state.get("pid", 0)) != state.get("pid_started"):
        return {}
    return state


def started_at(pid: int) -> str:
    """When a process was started, in the kernel's ticks; empty if there is none of that id.

    Together with the id it names a process for good: ids are used again, instants are not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return fields[19]


_NOT_IDLE_FOR_EVER = "-c idle_in_transaction_session_timeout=30s"


def django_database(url: str) -> dict[str, Any]:
    """A DATABASES entry for a ``postgresql://`` URL (libpq's form, query options included).

    A connection is kept by its thread and checked before it is used again. Unless the URL has
    ``options`` of its own, PostgreSQL ends a session that stands idle in a transaction for 30 s: a
    process that was stopped there would hold its run's lock for as long as it stands.
    """
    parts = {k: v for k, v in conninfo_to_dict(url).items() if v is not None}
    entry: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql"}
    entry |= {name: str(parts.get(key, "")) for key, name in _CLIENT_KEYS.items()}
    options = {k: v for k, v in parts.items() if k not in _CLIENT_KEYS}
    options.setdefault("options", _NOT_IDLE_FOR_EVER)
    return entry | {"OPTIONS": options, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
