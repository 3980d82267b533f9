"""``sql.query`` and ``sql.execute``: one fixed statement over a database of the house."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from orchestrator.adapters import sql
from orchestrator.adapters.sql import STATEMENT_TIMEOUT_S, Statement, Target, WriteKey
from orchestrator.authoring import Permanent, ToolContext, tool

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
FIXED = ("database", "statement")


@tool("sql.query", idempotent=True, literal=FIXED)
def query(
    ctx: ToolContext, database: Name, statement: Text, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Read from a database and answer ``{rows: [{column: value}], row_count}``.

    ``database`` names the secret ``sql <name>`` that holds its address. ``statement`` stands in
    the document as it is; values come by ``%(name)s`` places from ``params``. At most 5 seconds,
    1,000 rows and 1 MiB.
    """
    return sql.query(_target(ctx, database), _statement(ctx, statement, params)).as_json()


def find_write(
    ctx: ToolContext, database: Name, statement: Text, params: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """What the write under the call's key gave, as the target itself has kept it."""
    found = sql.find(_target(ctx, database), _statement(ctx, statement, params), _key(ctx))
    return None if found is None else found.as_json()


@tool("sql.execute", idempotent=True, effect="required", reconcile=find_write, literal=FIXED)
def execute(
    ctx: ToolContext, database: Name, statement: Text, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write to a database once and answer ``{rows, row_count}``; rows come with ``RETURNING``.

    The effect key is kept in the target's table ``orchestrator_effect``, in the same transaction
    as the write. Names, places and bounds are those of ``sql.query``.
    """
    target, wanted = _target(ctx, database), _statement(ctx, statement, params)
    return sql.execute(target, wanted, _key(ctx)).as_json()


def _target(ctx: ToolContext, database: str) -> Target:
    return Target(name=database, dsn=ctx.secret(f"sql {database}"))


def _statement(ctx: ToolContext, text: str, params: dict[str, Any] | None) -> Statement:
    limit = min(STATEMENT_TIMEOUT_S, ctx.time_left())
    return Statement(text=text, params=params or {}, timeout_s=limit)


def _key(ctx: ToolContext) -> WriteKey:
    if ctx.idempotency_key is None:
        raise Permanent("sql.execute needs an effect key: give the step effect: {key: …}")
    return WriteKey(tenant=ctx.tenant, key=ctx.idempotency_key)
