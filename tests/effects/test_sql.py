"""SQL tools over a real database: what they may do, what they may not, and writing once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection as own

from orchestrator import engine
from orchestrator.adapters import sql
from orchestrator.adapters.sql import Statement, Target, WriteKey
from orchestrator.authoring import Permanent, ToolError, Transient
from orchestrator.models import Effect
from tests.effects.forked import die, dies
from tests.effects.target import Foreign, foreign_database
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import error, events, lose, output, ran, started, state

KEY = WriteKey(tenant="acme", key="ship:1")


@pytest.fixture(scope="module")
def base(django_db_setup: None) -> Iterator[Foreign]:
    with foreign_database() as found:
        yield found


@pytest.fixture
def foreign(base: Foreign, monkeypatch: Any) -> Foreign:
    with psycopg.connect(base.owner) as connection:
        connection.execute("DELETE FROM orchestrator_effect; DELETE FROM orders WHERE id > 1")
        connection.execute("UPDATE orders SET state = 'open'")
        connection.execute("DROP TABLE IF EXISTS own.orchestrator_effect")
    monkeypatch.setenv("SECRET_SQL_ERP", base.writer)
    monkeypatch.setenv("SECRET_SQL_VIEWS", base.reader)
    return base


def read(foreign: Foreign, text: str, **params: Any) -> sql.Result:
    return sql.query(Target(name="views", dsn=foreign.reader), Statement(text=text, params=params))


def write(foreign: Foreign, text: str, key: WriteKey = KEY, **params: Any) -> sql.Result:
    target = Target(name="erp", dsn=foreign.writer)
    return sql.execute(target, Statement(text=text, params=params), key)


# -- reading ---------------------------------------------------------------------------------------


def test_rows_come_as_plain_json(foreign: Foreign) -> None:
    target = Target(name="erp", dsn=foreign.writer)
    text = "SELECT * FROM orders WHERE id = %(id)s AND state LIKE 'op%%'"

    found = sql.query(target, Statement(text=text, params={"id": 1}))

    (row,) = found.rows
    at = row.pop("at")
    assert at.startswith(("2030-01-01T", "2029-12-31T"))
    assert row == {
        "id": 1,
        "state": "open",
        "price": "9.90",
        "tags": ["a", "b"],
        "data": {"n": 1},
        "raw": "/wA=",
    }
    assert found.row_count == 1


def test_values_of_every_kind_go_in_and_out(foreign: Foreign) -> None:
    text = (
        "SELECT %(n)s::int AS n, %(f)s::float8 AS f, %(none)s::text AS none, %(yes)s::bool AS yes,"
        " %(list)s::text[] AS list, %(object)s::jsonb AS object, %(rows)s::jsonb AS rows,"
        " 'NaN'::float8 AS nan, 99999999999999999999::numeric AS big, interval '1 day' AS day,"
        " date '2030-01-02' AS date, time '10:00' AS time"
    )
    given = {"n": 1, "f": 0.5, "none": None, "yes": True, "list": ["a", "'; DROP TABLE orders"]}
    more = {"object": {"a": [1]}, "rows": [{"a": 1}]}

    (row,) = read(foreign, text, **given, **more).rows

    assert {name: row[name] for name in given | more} == given | more
    assert (row["nan"], row["big"], row["date"]) == ("nan", "9" * 20, "2030-01-02")
    assert (row["day"], row["time"]) == ("1 day, 0:00:00", "10:00:00")


BYPASSES = [
    "SELECT * FROM canary",
    "TABLE canary",
    "SELECT secret FROM public.canary",
    "WITH c AS (SELECT * FROM canary) SELECT * FROM c",
    "SELECT o.*, l.* FROM open_orders o, LATERAL (SELECT secret FROM canary) l",
    "SELECT (SELECT secret FROM canary LIMIT 1)",
    "SELECT * FROM open_orders UNION ALL SELECT 1, secret FROM canary",
    "SELECT query_to_xml('SELECT * FROM canary', true, false, '')",
    "SELECT table_to_xml('canary', true, false, '')",
    "SELECT 1; SELECT * FROM canary",
    "SELECT 1; DROP TABLE canary",
    "SELECT 1; COMMIT; DELETE FROM orders",
    "DELETE FROM orders",
    "UPDATE open_orders SET state = 'x'",
    "INSERT INTO orders VALUES (2, 'x')",
    "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
    "WITH made AS (INSERT INTO canary VALUES ('x') RETURNING *) SELECT * FROM made",
    "SELECT * INTO TEMP stolen FROM open_orders",
    "SELECT * FROM orders FOR UPDATE",
    "COPY canary TO STDOUT",
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('PG_VERSION')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> current_user",
    "SELECT pg_reload_conf()",
    "SELECT set_config('role', (SELECT rolname FROM pg_roles WHERE rolsuper LIMIT 1), true)",
    "SELECT set_config('session_authorization', 'postgres', true)",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT set_config('statement_timeout', '0', true), pg_sleep(30)",
    "SELECT pg_sleep(30)",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "RESET ALL",
    "BEGIN READ WRITE",
    "COMMIT",
    "ROLLBACK",
    "DO $$ BEGIN DELETE FROM orders; END $$",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TEMP TABLE t (x int)",
    "EXPLAIN ANALYZE DELETE FROM orders",
    "PREPARE p AS SELECT * FROM canary",
    "CALL p()",
    "VACUUM",
    "LISTEN canary",
    "NOTIFY canary",
    "ALTER SYSTEM SET log_statement = 'all'",
    "GRANT SELECT ON canary TO PUBLIC",
    "/* SELECT */ DROP TABLE canary",
    "-- SELECT\nDROP TABLE canary",
    "((DELETE FROM orders))",
    "",
    "SELECT tenant FROM Orchestrator_Effect",
    "SELECT generate_series(1, 1000000000)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
    "SELECT repeat('x', 2000000)",
    "SELECT repeat('x', 20000) FROM generate_series(1, 500)",
    "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000000) b",
    "SELECT 'not closed",
    "SELECT %(missing)s",
    "SELECT 100%",
]


@pytest.mark.parametrize("text", BYPASSES)
def test_no_statement_leads_past_what_the_role_may_see(foreign: Foreign, text: str) -> None:
    target = Target(name="views", dsn=foreign.reader)
    with pytest.raises(ToolError) as refused:
        sql.query(target, Statement(text=text, timeout_s=0.4))

    assert "tweet" not in str(refused.value)
    assert "pass-word-1" not in str(refused.value)
    assert foreign.look("SELECT secret FROM canary") == [("tweet",)]
    assert foreign.look("SELECT id, state FROM orders") == [(1, "open")]


KEYS = "'SELECT * FROM orchestrator' || '_effect'"
ROUND_THE_ROLE = [
    f"SELECT query_to_xml({KEYS}, true, false, '')",
    f"SELECT pg_catalog . query_to_xml ({KEYS}, true, false, '')",
    f'SELECT "pg_catalog"."query_to_xml"({KEYS}, true, false, NULL)',
    f"SELECT QUERY_TO_XML/* /* */ */({KEYS}, true, false, '')",
    f"SELECT query_to_xml -- no\n({KEYS}, true, false, '')",
    f"SELECT '''' || query_to_xml({KEYS}, true, false, '')::text",
    f"SELECT $a$ ' $a$ || query_to_xml({KEYS}, true, false, '')::text",
    rf"SELECT E'\'' || query_to_xml({KEYS}, true, false, '')::text",
    f"SELECT E'a'\n'\\'', query_to_xml({KEYS}, true, false, ''), 'b'",
    f"SELECT %(a)s, query_to_xml({KEYS}, true, false, '')",
    f"SELECT 1 %% 2, query_to_xml({KEYS}, true, false, '')",
    "SELECT table_to_xml(('orchestrator' || '_effect')::regclass, true, false, '')",
    "SELECT schema_to_xml('public', true, false, '')",
    "SELECT database_to_xml(true, false, '')",
    f"SELECT query_to_xml_and_xmlschema({KEYS}, true, false, '')",
    f"SELECT cursor_to_xml('c', 1, true, false, {KEYS})",
    "SELECT * FROM ts_stat('SELECT to_tsvector(effect_key) FROM orchestrator' || '_effect')",
    f"SELECT ts_rewrite('a'::tsquery, {KEYS})",
    f"SELECT * FROM dblink('dbname=x', {KEYS}) AS t(a text)",
    "SELECT dblink_connect('host=10.0.0.1')",
    f"SELECT * FROM crosstab({KEYS}) AS t(a text, b text)",
    "SELECT * FROM http_get('http://10.0.0.1/')",
    "SELECT lo_get(1)",
    "SELECT loread(1, 10)",
    "SELECT current_setting('data_directory')",
    "SELECT set_config('orchestrator.x', 'y', false)",
    "SELECT pg_read_file('PG_VERSION')",
    "SELECT pg_sleep(1)",
    "SELECT pg_sleep_for('1 second')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "WITH x AS (SELECT pg_backend_pid() AS p) SELECT * FROM x",
]


@pytest.mark.parametrize("text", ROUND_THE_ROLE)
def test_no_function_leads_round_the_look_at_the_statement(foreign: Foreign, text: str) -> None:
    """The writer's role may read the table of keys: only the look keeps a document from it."""
    target = Target(name="erp", dsn=foreign.writer)
    statement = Statement(text=text, params={"a": 1} if "%(a)s" in text else {})

    with pytest.raises(Permanent, match=r"may not be called by sql\.query"):
        sql.query(target, statement)
    with pytest.raises(Permanent, match=r"may not be called by sql\.execute"):
        sql.execute(target, statement, WriteKey(tenant="acme", key="other"))


ALLOWED = [
    "SELECT 'pg_sleep(1)' AS word",
    'SELECT 1 AS "pg_sleep(1)"',
    "SELECT $$ query_to_xml('x') $$ AS word /* pg_sleep(1) */ -- set_config('a')",
    r"SELECT $q$ it's pg_sleep(1) $q$, E'it\'s pg_sleep(1)'",
    "SELECT pg_typeof(1)::text, pg_size_pretty(2048::bigint)",
    "SELECT count(*), max(id), coalesce(min(state), 'x') FROM orders WHERE id IN (1, 2)",
    "WITH pg AS (SELECT 1 AS n) SELECT * FROM pg WHERE (n) > (0)",
    "SELECT 10 %% 3 AS rest, 'a' LIKE 'a%%' AS yes",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_what_only_looks_like_such_a_call_is_read(foreign: Foreign, text: str) -> None:
    assert sql.query(Target(name="erp", dsn=foreign.writer), Statement(text=text)).row_count == 1


WRITE_BYPASSES = [
    "COMMIT",
    "ROLLBACK",
    "UPDATE orders SET state = 'x'; COMMIT",
    "INSERT INTO canary VALUES ('x')",
    "DELETE FROM orchestrator_effect",
    'DELETE FROM U&"orchestrator\\005feffect"',
    "SELECT * FROM canary",
    "DROP TABLE orders",
    "TRUNCATE orders",
    "CREATE TABLE mine (x int)",
    "COPY orders FROM PROGRAM 'id'",
    "SET LOCAL statement_timeout = 0",
    "LOCK TABLE orders",
    "UPDATE orders SET id = 'x'",
    "INSERT INTO orders SELECT n, 'x' FROM generate_series(2, 5000) n RETURNING *",
]


@pytest.mark.parametrize("text", WRITE_BYPASSES)
def test_a_write_that_is_refused_leaves_nothing_not_even_its_key(
    foreign: Foreign, text: str
) -> None:
    with pytest.raises(Permanent):
        write(foreign, text)

    assert foreign.look("SELECT id, state FROM orders") == [(1, "open")]
    assert foreign.look("SELECT secret FROM canary") == [("tweet",)]
    assert foreign.look("SELECT * FROM orchestrator_effect") == []


def test_the_engines_own_database_is_refused(foreign: Foreign, transactional_db: None) -> None:
    mine = psycopg.conninfo.make_conninfo(foreign.reader, dbname=own.settings_dict["NAME"])

    with pytest.raises(Permanent, match="engine's own"):
        sql.query(Target(name="own", dsn=mine), Statement(text="SELECT 1"))


def test_a_role_that_reaches_beyond_tables_is_refused(foreign: Foreign) -> None:
    with pytest.raises(Permanent, match="only the rights that it needs"):
        sql.query(Target(name="own", dsn=foreign.owner), Statement(text="SELECT 1"))


@pytest.mark.parametrize(
    ("dsn", "kind"),
    [
        ("s3cret", Permanent),
        ("s3cret=1", Permanent),
        ("postgresql://me:s3cret@127.0.0.1:5432", Permanent),
        ("postgresql://me:s3cret@127.0.0.1:9/x", Transient),
        ("postgresql://me:s3cret@/x?host=/nowhere", Transient),
    ],
)
def test_a_database_that_cannot_be_reached_gives_nothing_away(dsn: str, kind: Any) -> None:
    target = Target(name="erp", dsn=dsn)
    with pytest.raises(kind) as refused:
        sql.query(target, Statement(text="SELECT 1"))

    assert "erp" in str(refused.value)
    assert "s3cret" not in f"{refused.value!r} {refused.value.__cause__!r} {target!r}"
    assert getattr(refused.value, "not_applied", True)


# -- writing once ----------------------------------------------------------------------------------

SHIP = "UPDATE orders SET state = 'shipped ' || state WHERE id = %(id)s RETURNING id, state"


def test_a_write_happens_once_and_its_answer_is_kept_with_it(foreign: Foreign) -> None:
    first, again = (write(foreign, SHIP, id=1) for _ in range(2))

    assert first == again
    assert first.as_json() == {"rows": [{"id": 1, "state": "shipped open"}], "row_count": 1}
    assert foreign.look("SELECT state FROM orders") == [("shipped open",)]
    found = sql.find(
        Target(name="erp", dsn=foreign.writer), Statement(text=SHIP, params={"id": 1}), KEY
    )
    assert found == first


def test_a_write_without_rows_counts_what_it_touched(foreign: Foreign) -> None:
    done = write(
        foreign, "INSERT INTO orders (id, state) SELECT n, 'x' FROM generate_series(2, 4) n"
    )

    assert done.as_json() == {"rows": [], "row_count": 3}


def test_two_tenants_may_use_one_key(foreign: Foreign) -> None:
    write(foreign, SHIP, id=1)
    write(foreign, SHIP, WriteKey(tenant="other", key=KEY.key), id=1)

    assert foreign.look("SELECT state FROM orders") == [("shipped shipped open",)]


def test_one_key_for_two_statements_is_refused(foreign: Foreign) -> None:
    write(foreign, SHIP, id=1)

    with pytest.raises(Permanent, match="another statement"):
        write(foreign, SHIP, id=2)


def test_of_two_writers_at_once_one_writes(foreign: Foreign) -> None:
    start, answers = threading.Barrier(4), []

    def work() -> None:
        start.wait(timeout=30)
        answers.append(write(foreign, SHIP, id=1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
    assert foreign.look("SELECT state FROM orders") == [("shipped open",)]


def test_the_table_is_made_where_the_role_may_and_named_where_it_may_not(foreign: Foreign) -> None:
    maker = Target(name="maker", dsn=foreign.maker)
    text = "SELECT 1 AS done"
    assert sql.find(maker, Statement(text=text), KEY) is None
    assert sql.execute(maker, Statement(text=text), KEY).rows == [{"done": 1}]
    assert sql.execute(maker, Statement(text=text), KEY).rows == [{"done": 1}]

    with psycopg.connect(foreign.owner) as connection:
        connection.execute("ALTER TABLE orchestrator_effect RENAME TO hidden")
    try:
        with pytest.raises(Permanent, match=r"manage\.py sql_effect_table"):
            write(foreign, SHIP, id=1)
    finally:
        with psycopg.connect(foreign.owner) as connection:
            connection.execute("ALTER TABLE hidden RENAME TO orchestrator_effect")
    assert foreign.look("SELECT state FROM orders") == [("open",)]


# -- over the engine -------------------------------------------------------------------------------


def ship(**step: Any) -> dict[str, Any]:
    given = {"database": "erp", "statement": SHIP, "params": {"id": 1}}
    return {
        "type": "tool",
        "tool": "sql.execute",
        "input": given,
        "effect": {"key": "ship:1"},
    } | step


def test_a_run_reads_and_writes(carrier: Carrier, foreign: Foreign) -> None:
    given = {"database": "views", "statement": "SELECT id, state FROM open_orders"}
    steps = {"look": {"type": "tool", "tool": "sql.query", "input": given}, "ship": ship()}

    done = output(ran(carrier, steps))

    assert done["look"]["rows"][0]["id"] == 1
    assert done["ship"]["row_count"] == 1
    assert Effect.objects.get().response == done["ship"]


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_worker_that_dies_around_the_targets_commit_writes_once(
    carrier: Carrier, foreign: Foreign, moment: str
) -> None:
    run_id = started({"ship": ship()})
    carrier.messages.clear()
    commit = psycopg.Connection.commit

    def deadly(connection: Any) -> None:
        if connection.info.dbname.startswith("foreign_"):
            if moment == "after the commit":
                commit(connection)
            die()
        commit(connection)

    def work() -> None:
        psycopg.Connection.commit = deadly  # type: ignore[method-assign]
        engine.run_step(engine.Order(run_id=run_id, key="ship"), Always())

    dies(work)
    written = moment == "after the commit"
    shown = "shipped open" if written else "open"
    assert foreign.look("SELECT state FROM orders") == [(shown,)]
    assert Effect.objects.get().status == "intended"

    lose(run_id, "ship")
    engine.beat_once()
    carrier.run_all()

    assert output(run_id)["ship"]["rows"] == [{"id": 1, "state": "shipped open"}]
    assert foreign.look("SELECT state FROM orders") == [("shipped open",)]
    assert events(run_id).count("effect.receipt") == 1


@pytest.mark.parametrize("parameter", ["statement", "database"])
def test_a_run_cannot_bring_its_own_statement(
    carrier: Carrier, foreign: Foreign, parameter: str
) -> None:
    step = ship()
    step["input"] = {**step["input"], parameter: "${{ input.text }}"}

    run = ran(carrier, {"ship": step}, {"text": SHIP if parameter == "statement" else "erp"})

    assert (state(run), error(run)["class"]) == ("failed", "permanent")
    assert parameter in error(run)["message"]
    assert foreign.look("SELECT state FROM orders") == [("open",)]
