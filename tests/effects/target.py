"""A database of somebody else's, in the same cluster, with roles that may do little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from orchestrator.adapters.sql import DDL

TABLES = f"""
CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL, price numeric, at timestamptz,
                     tags text[], data jsonb, raw bytea);
INSERT INTO orders VALUES
    (1, 'open', 9.90, '2030-01-01T00:00:00Z', '{{a,b}}', '{{"n": 1}}', '\\xff00');
CREATE TABLE canary (secret text);
INSERT INTO canary VALUES ('tweet');
CREATE VIEW open_orders AS SELECT id, state FROM orders;
{DDL};
"""


@dataclass(frozen=True)
class Foreign:
    """``reader`` sees one view; ``writer`` may change orders; ``maker`` owns the schema."""

    reader: str
    writer: str
    maker: str
    owner: str

    def look(self, query: str) -> list[Any]:
        with psycopg.connect(self.owner) as connection:
            return connection.execute(query).fetchall()


@contextmanager
def foreign_database() -> Iterator[Foreign]:
    base = settings.DATABASES["default"]
    name = f"foreign_{os.getpid()}"
    given = {"user": base["USER"], "password": base["PASSWORD"], "host": base["HOST"]}
    given = {k: v for k, v in {**given, "port": base["PORT"]}.items() if v}
    admin = make_conninfo(dbname="postgres", **given)
    roles = {each: f"{each}_{name}" for each in ("reader", "writer", "maker")}

    def address(user: str) -> str:
        return make_conninfo(**{**given, "user": user, "password": "pass-word-1"}, dbname=name)

    with psycopg.connect(admin, autocommit=True) as connection:
        _drop(connection, name, roles)
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        for role in roles.values():
            connection.execute(
                SQL("CREATE ROLE {} LOGIN PASSWORD 'pass-word-1'").format(Identifier(role))
            )
    owner = make_conninfo(**given, dbname=name)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(TABLES)
        for grant in (
            f"GRANT SELECT ON open_orders TO {roles['reader']}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO {roles['writer']}",
            f"GRANT SELECT, INSERT, UPDATE ON orchestrator_effect TO {roles['writer']}",
            f"CREATE SCHEMA own AUTHORIZATION {roles['maker']}",
            f"ALTER ROLE {roles['maker']} SET search_path = own",
        ):
            connection.execute(grant)
    try:
        yield Foreign(*(address(role) for role in roles.values()), owner=owner)
    finally:
        with psycopg.connect(admin, autocommit=True) as connection:
            _drop(connection, name, roles)


def _drop(connection: psycopg.Connection[Any], name: str, roles: dict[str, str]) -> None:
    connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))
    for role in roles.values():
        connection.execute(SQL("DROP ROLE IF EXISTS {}").format(Identifier(role)))
