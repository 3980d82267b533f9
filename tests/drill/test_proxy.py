"""The proxy hurts exactly what it is told to, and nothing else."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.drill.proxy import Address, Bytes, Pattern, Proxy, Statements, is_commit

SERVER = os.environ["DATABASE_URL"]
DATABASE = urlsplit(SERVER).path.lstrip("/")


def upstream(url: str = SERVER) -> Address:
    parts = urlsplit(url)
    folder = parse_qs(parts.query).get("host")
    if folder:
        return str(Path(folder[0]) / ".s.PGSQL.5432")
    return parts.hostname or "127.0.0.1", parts.port or 5432


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(upstream()) as made:
        yield made


@pytest.fixture
def table() -> Iterator[str]:
    name = f"proxy_{uuid4().hex}"
    with psycopg.connect(SERVER, autocommit=True) as direct:
        direct.execute(f"CREATE TABLE {name} (n int)")
        yield name
        direct.execute(f"DROP TABLE {name}")


def through(proxy: Proxy, *, autocommit: bool = False) -> psycopg.Connection:
    return psycopg.connect(proxy.url(DATABASE), autocommit=autocommit)


def rows(table: str) -> int:
    with psycopg.connect(SERVER, autocommit=True) as direct:
        return int(direct.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_what_is_not_hurt_passes(proxy: Proxy, table: str) -> None:
    with through(proxy) as connection:
        for n in range(3):
            connection.execute(f"INSERT INTO {table} VALUES (%s)", [n])
        assert connection.execute("SELECT repeat('x', 300000)").fetchone() == ("x" * 300000,)
    assert rows(table) == 3


@pytest.mark.parametrize(("applied", "kept"), [(True, 1), (False, 0)])
def test_a_commit_whose_answer_is_lost_is_kept_and_one_that_never_left_is_not(
    proxy: Proxy, table: str, applied: bool, kept: int
) -> None:
    trap = proxy.set_trap(lambda: Statements(is_commit), applied=applied)
    connection = through(proxy)
    connection.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    assert trap.sprung
    assert rows(table) == kept


def test_a_prepared_statement_is_known_by_its_name(proxy: Proxy, table: str) -> None:
    def is_insert(sql: str) -> bool:
        return sql.startswith("INSERT")

    trap = proxy.set_trap(lambda: Statements(is_insert), nth=3)
    connection = through(proxy, autocommit=True)
    insert = f"INSERT INTO {table} VALUES (%s)"
    connection.execute(insert, [1], prepare=True)
    connection.execute(insert, [2], prepare=True)
    with pytest.raises(psycopg.OperationalError):
        connection.execute(insert, [3], prepare=True)
    assert (trap.hits, rows(table)) == (3, 3)
    with through(proxy, autocommit=True) as again:  # the trap has sprung: once is enough
        again.execute(insert, [4])
    assert rows(table) == 4


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that hands back what it gets, one connection after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_hand_back, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _hand_back(peer: socket.socket) -> None:
    with peer, contextlib.suppress(OSError):
        while data := peer.recv(100):
            peer.sendall(data)


def dial(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=2)


def test_it_cuts_after_exactly_so_many_bytes(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, dial(proxy) as client:
        proxy.set_trap(lambda: Bytes(7))
        with dial(proxy) as watched:
            watched.sendall(b"abcd")
            assert watched.recv(10) == b"abcd"
            watched.sendall(b"efghij")
            assert _ended(watched)
        client.sendall(b"this one is not watched")
        assert client.recv(10) == b"this one i"


def test_a_pattern_is_found_across_two_chunks(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy:
        trap = proxy.set_trap(lambda: Pattern(b"needle"), applied=False)
        with dial(proxy) as client:
            client.sendall(b"hay nee")
            assert client.recv(10) == b"hay nee"
            client.sendall(b"dle hay")
            assert _ended(client)
        assert trap.sprung


def test_stalled_bytes_arrive_later_and_dropped_ones_never(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, dial(proxy) as client:
        client.settimeout(0.1)
        proxy.stall()
        client.sendall(b"one")
        with pytest.raises(TimeoutError):
            client.recv(10)
        proxy.heal()
        client.settimeout(2)
        assert client.recv(10) == b"one"
        proxy.drop()
        client.sendall(b"two")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(10)
        proxy.heal()
        client.settimeout(2)
        client.sendall(b"three")
        assert client.recv(10) == b"three"


def test_a_cut_ends_what_is_open_and_a_refusal_what_comes(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, dial(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.cut()
        assert _ended(client)
        with dial(proxy) as other:
            other.sendall(b"y")
            assert other.recv(1) == b"y"
        proxy.refuse()
        with dial(proxy) as refused:
            assert _ended(refused)
        proxy.heal()
        with dial(proxy) as healed:
            healed.sendall(b"z")
            assert healed.recv(1) == b"z"


def _ended(client: socket.socket) -> bool:
    """Whether the connection is over; a time-out raises."""
    try:
        while client.recv(100):
            pass  # what had been sent back before the end
    except ConnectionError:
        return True
    return True
