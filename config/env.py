"""The environment, read once and typed: every variable the product knows stands here.

Precedence: process environment, then a ``.env`` file beside ``manage.py``, then the default.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from orchestrator.core.durations import parse_duration
from orchestrator.core.routing import Place, QueueRoute, queue_type

BASE_DIR = Path(__file__).resolve().parent.parent
QUEUE_TYPES = ("engine", "agent", "tool", "approval", "subworkflow", "compensation")

CommaList = Annotated[tuple[str, ...], NoDecode]
Port = Annotated[int, Field(ge=1, le=65535)]


class BadEnvironmentError(Exception):
    """Variables that do not make sense; the message names each one and what is wrong with it."""


class Environment(BaseSettings):
    """What an operator may set. The field's name in capitals is the variable's name."""

    model_config = SettingsConfigDict(
        env_file=BASE_DIR / ".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    database_url: str | None = Field(
        None, description="PostgreSQL 15 or newer; not set: the embedded server of the stack"
    )
    broker_url: str | None = Field(
        None, description="Valkey or Redis as redis://…; not set: the embedded server of the stack"
    )
    data_dir: Path = Field(BASE_DIR / ".data", description="embedded data, logs, generated secrets")

    secret_key: SecretStr | None = Field(None, description="needed in production; else generated")
    debug: bool | None = Field(None, description="not set: on in dev settings only")
    allowed_hosts: CommaList = Field(
        ("localhost", "127.0.0.1", "[::1]"), description="comma list of host names"
    )
    csrf_trusted_origins: CommaList = Field((), description="comma list of https://host origins")
    public_url: str | None = Field(
        None, description="address in links to people; not set: http://localhost:WEB_PORT"
    )
    extra_apps: CommaList = Field((), description="comma list of further Django apps with tools")
    http_allow_private: CommaList = Field(
        (), description="comma list of host or host:port inside the house that tools may call"
    )
    log_level: str = Field(
        "INFO", pattern="^(DEBUG|INFO|WARNING|ERROR|CRITICAL)$", description="what is logged"
    )

    web_host: str = Field("127.0.0.1", description="where the stack's web server listens")
    web_port: Port = Field(8000, description="port of the console and the API")
    web_threads: int = Field(
        8, ge=1, le=200, description="requests that a web process answers at once, each connected"
    )
    flower_port: Port = Field(5555, description="port of Flower, on loopback only")

    orchestrator_held: bool = Field(
        default=False, description="hold everything at start, until manage.py release global"
    )
    orchestrator_queue_routes: tuple[dict[str, str], ...] = Field(
        (),
        description='JSON list of rules that split queues: [{"tool": "erp.*", "to": ".erp"}]',
    )
    orchestrator_models: dict[str, str | tuple[str, ...]] = Field(
        {},
        description='JSON: aliases of models in order of fail-over, {"fast": ["openai:gpt-x", …]}',
    )
    orchestrator_providers: dict[str, dict[str, Any]] = Field(
        {},
        description="JSON: providers of models with url, key (secret:NAME), prices, timeout_s",
    )
    orchestrator_fuse: bool = Field(default=True, description="run linear stretches in one message")
    after_restore: bool = Field(
        default=False,
        description="the database is a restored backup: look each effect up before it is called",
    )
    task_events: bool = Field(
        default=False, description="let workers tell Flower each task; costs speed"
    )
    lease_seconds: float = Field(15, gt=0, description="life of a running step's lease")
    renew_seconds: float = Field(5, gt=0, description="how often a lease is renewed")
    replay_gate_percent: float = Field(
        100, ge=0, le=100, description="identical replays of a day below which an alert opens"
    )
    orchestrator_effect_retention: str | None = Field(
        None, description="forget receipts of ended runs after this, e.g. 400d; not set: never"
    )
    extra_queues: CommaList = Field(
        (), description="comma list such as tool.erp, agent.opus, tool@eu beside the six"
    )
    task_hard_limit_seconds: int = Field(
        21_600, ge=60, description="backstop: ends a pool child that outlives every step timeout"
    )

    @field_validator(
        "allowed_hosts",
        "csrf_trusted_origins",
        "extra_apps",
        "extra_queues",
        "http_allow_private",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if urlsplit(value).scheme not in ("postgresql", "postgres"):
            raise ValueError("must look like postgresql://user:password@host:5432/name")
        if not conninfo_to_dict(value).get("dbname"):
            raise ValueError("names no database: append /name")
        return value

    @field_validator("broker_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("redis", "rediss"):
            raise ValueError("must look like redis://:password@host:6379/0 (Valkey takes it too)")
        return value

    @field_validator("extra_apps")
    @classmethod
    def _are_modules(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in value if not all(p.isidentifier() for p in name.split("."))]
        if wrong:
            raise ValueError(f"not dotted Python names: {', '.join(wrong)}")
        return value

    @field_validator("orchestrator_effect_retention")
    @classmethod
    def _is_long(cls, value: str | None) -> str | None:
        if value is not None and parse_duration(value) < timedelta(days=1):
            raise ValueError("must be at least 1d: a receipt keeps an effect from happening twice")
        return value

    @field_validator("extra_queues")
    @classmethod
    def _belong_to_a_type(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in value if queue_type(name) not in QUEUE_TYPES]
        if wrong:
            raise ValueError(
                f"{', '.join(wrong)}: a queue is <type>.<name> or <type>@<region>,"
                f" the type one of {', '.join(QUEUE_TYPES)}"
            )
        return value

    @field_validator("orchestrator_queue_routes")
    @classmethod
    def _lead_somewhere(cls, value: tuple[dict[str, str], ...]) -> tuple[dict[str, str], ...]:
        known = set(QueueRoute.__dataclass_fields__)
        for number, rule in enumerate(value):
            unknown = sorted(set(rule) - known)
            if unknown or "to" not in rule:
                fault = f"does not know {', '.join(unknown)}" if unknown else "lacks to"
                raise ValueError(f"rule {number} {fault}; a rule has {', '.join(sorted(known))}")
            if not route_queues(QueueRoute(**rule)):
                raise ValueError(
                    f"rule {number}: no step type goes to {rule['to']}; write .<name>, @<region>"
                    " or <type>.<name>"
                )
        return value

    @model_validator(mode="after")
    def _lease_outlives_renewal(self) -> Self:
        if self.renew_seconds * 2 > self.lease_seconds:
            raise ValueError("RENEW_SECONDS must be at most half of LEASE_SECONDS")
        return self

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues of this installation, the six types first."""
        routed = [q for rule in self.orchestrator_queue_routes for q in route_queues_of(rule)]
        return tuple(dict.fromkeys((*QUEUE_TYPES, *self.extra_queues, *routed)))


def route_queues_of(rule: dict[str, str]) -> tuple[str, ...]:
    """Every queue that work may go to by this rule."""
    return route_queues(QueueRoute(**rule))


def route_queues(rule: QueueRoute) -> tuple[str, ...]:
    """Every queue that work may go to by this rule: one for each step type that it fits."""
    found = []
    for kind in QUEUE_TYPES:
        queue = rule.queue(Place(type=kind))
        is_for = fnmatchcase(kind, rule.type) and queue_type(queue) == kind
        is_tool = rule.tool == "*" or kind in ("tool", "compensation")
        is_model = rule.model == "*" or kind == "agent"
        if is_for and is_tool and is_model:
            found.append(queue)
    return tuple(found)


@cache
def environment() -> Environment:
    """The process's environment; raises BadEnvironmentError naming every bad variable at once."""
    try:
        return Environment()
    except ValidationError as error:
        raise BadEnvironmentError(_explain(error)) from error


def generated_secret(path: Path) -> str:
    """The secret kept in ``path``, made on first use; the file is readable by its owner alone.

    Raises BadEnvironmentError when the folder is not ours to use.
    """
    try:
        return _kept_secret(path)
    except OSError as error:
        raise BadEnvironmentError(
            f"The data folder {path.parent} cannot be used ({error.strerror}): run as its owner,"
            " or set DATA_DIR to a folder of your own."
        ) from error


def _kept_secret(path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        # Linked, not written in place: of two processes that start together one wins, whole.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text().strip()


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]).upper() if problem["loc"] else "the environment"
        lines.append(f"{name}: {problem['msg'].removeprefix('Value error, ')}")
    return "Bad settings in the environment or .env:\n  " + "\n  ".join(lines)
