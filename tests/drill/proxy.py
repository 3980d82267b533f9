"""A TCP proxy of our own that hurts what passes through it: cut, stalled, silent, cut in mid-word.

    with Proxy("/run/pg/.s.PGSQL.5432") as proxy:     # or ("127.0.0.1", 5432)
        proxy.url("orchestrator")                      # a DATABASE_URL that leads through it
        trap = proxy.set_trap(Statements(is_commit), nth=3)
        ...
        assert trap.sprung                             # the third COMMIT got no answer

Threads, one listener and two a connection. What it does is done to both ends at once, by
``shutdown``, so that a forked child that holds a copy of a socket does not keep it open.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

Address = str | tuple[str, int]
CHUNK = 65536


class Watcher(Protocol):
    """Looks at what one connection sends upstream."""

    def find(self, data: bytes) -> tuple[int, int] | None:
        """Where in this chunk the watched thing begins and ends; None: it is not in it."""
        ...


class Bytes:
    """The first ``count`` bytes, exactly."""

    def __init__(self, count: int) -> None:
        self._left = count

    def find(self, data: bytes) -> tuple[int, int] | None:
        if self._left > len(data):
            self._left -= len(data)
            return None
        at, self._left = self._left, 1 << 62
        return at, at


class Pattern:
    """These bytes, also when they come in two chunks."""

    def __init__(self, pattern: bytes) -> None:
        self._pattern, self._tail = pattern, b""

    def find(self, data: bytes) -> tuple[int, int] | None:
        before = len(self._tail)
        seen = self._tail + data
        at = seen.find(self._pattern)
        self._tail = seen[-(len(self._pattern) - 1) :] if len(self._pattern) > 1 else b""
        if at < 0:
            return None
        return max(0, at - before), at - before + len(self._pattern)


class Statements:
    """The execution of an SQL statement that ``wanted`` picks, in PostgreSQL's protocol.

    Knows prepared statements by the names under which they were parsed: a hot statement is sent
    as text only once a connection.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._buffer = b""
        self._greeted = False
        self._parsed: dict[bytes, str] = {}
        self._bound: dict[bytes, str] = {}
        self.executed: list[str] = []

    def find(self, data: bytes) -> tuple[int, int] | None:
        offset = -len(self._buffer)
        self._buffer += data
        found = None
        while (message := self._next()) is not None:
            start, offset = offset, offset + len(message)
            sql = self._executes(message)
            if sql is None:
                continue
            self.executed.append(sql)
            if found is None and self._wanted(sql):
                found = max(0, start), offset
        return found

    def _next(self) -> bytes | None:
        head = 1 if self._greeted else 0  # the first messages have no type
        if len(self._buffer) < head + 4:
            return None
        size = head + struct.unpack_from("!I", self._buffer, head)[0]
        if len(self._buffer) < size:
            return None
        message, self._buffer = self._buffer[:size], self._buffer[size:]
        if not self._greeted:
            code = struct.unpack_from("!I", message, 4)[0]
            self._greeted = code == 0x00030000 or code >> 16 == 3
        return message

    def _executes(self, message: bytes) -> str | None:
        """The SQL that this message has executed."""
        body = message[5:]
        match message[:1]:
            case b"Q":
                return body.rstrip(b"\0").decode()
            case b"P":
                name, sql = body.split(b"\0", 2)[:2]
                self._parsed[name] = sql.decode()
            case b"B":
                portal, name = body.split(b"\0", 2)[:2]
                self._bound[portal] = self._parsed.get(name, "")
            case b"E":
                return self._bound.get(body.split(b"\0", 1)[0])
        return None


_HOT = re.compile(r"\borchestrator_(?!now)\w+\(", re.IGNORECASE)


def is_commit(sql: str) -> bool:
    """Whether the statement makes something durable: COMMIT, or the engine's own hot statements
    (which commit by themselves when no transaction is open)."""
    return sql.lstrip().upper().startswith("COMMIT") or bool(_HOT.search(sql))


@dataclass
class Trap:
    """Springs once, at the ``nth`` time that a watcher finds something, over all connections.

    ``applied``: everything went upstream, the answer came back, and never reached the client.
    Not ``applied``: what was watched for never went upstream.
    """

    make: Callable[[], Watcher]
    nth: int = 1
    applied: bool = True
    hits: int = 0
    sprung: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def counts(self) -> bool:
        """Whether this hit is the one."""
        with self.lock:
            self.hits += 1
            if self.sprung or self.hits != self.nth:
                return False
            self.sprung = True
            return True


class _Link:
    """One client's connection, and ours upstream."""

    def __init__(self, client: socket.socket, server: socket.socket, trap: Trap | None) -> None:
        self.client, self.server = client, server
        self.trap = trap
        self.watcher = trap.make() if trap is not None else None
        self.doomed = False

    def cut(self) -> None:
        """Both ends learn at once that the other is gone."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on a port of 127.0.0.1 (or on a socket, named like PostgreSQL's) for ``upstream``."""

    def __init__(self, upstream: Address, *, unix: bool = False) -> None:
        self._upstream = upstream
        self._folder = tempfile.TemporaryDirectory(prefix="proxy-") if unix else None
        self._listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        if self._folder is not None:
            self._listener.bind(str(Path(self._folder.name) / ".s.PGSQL.5432"))
        else:
            self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._links: set[_Link] = set()
        self._trap: Trap | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._silent = False
        self._refuses = False
        self._closed = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    # -- where it is ---------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """What a client connects to: an address, or the folder of the socket."""
        return self._folder.name if self._folder is not None else "127.0.0.1"

    @property
    def port(self) -> int:
        """The port; 5432 names a socket in the folder."""
        return 5432 if self._folder is not None else int(self._listener.getsockname()[1])

    def url(self, database: str, *, user: str = "orchestrator") -> str:
        """A DATABASE_URL that leads through here."""
        return f"postgresql://{user}@/{database}?host={quote(self.host, safe='')}&port={self.port}"

    # -- what it does --------------------------------------------------------------------------

    def cut(self) -> None:
        """End every connection now; new ones are welcome."""
        for link in tuple(self._links):
            link.cut()

    def refuse(self) -> None:
        """End every connection, and each new one at once."""
        self._refuses = True
        self.cut()

    def stall(self) -> None:
        """Nothing travels, in either direction; nothing is lost."""
        self._flows.clear()

    def drop(self) -> None:
        """Half open: what is sent vanishes, in both directions, and nobody hears of it."""
        self._silent = True

    def heal(self) -> None:
        """All is well again; what was dropped or cut stays so."""
        self._refuses = self._silent = False
        self._flows.set()

    def set_trap(self, make: Callable[[], Watcher], *, nth: int = 1, applied: bool = True) -> Trap:
        """Cut the connection at the ``nth`` find of the watcher; connections opened from now on
        are watched."""
        self._trap = Trap(make, nth=nth, applied=applied)
        return self._trap

    def lift_trap(self) -> None:
        """No trap for connections opened from now on."""
        self._trap = None

    def close(self) -> None:
        """End it."""
        self._closed = True
        self.heal()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            try:
                server = _connected(self._upstream)
            except OSError:  # nobody is there: the client hears that too
                client.close()
                continue
            link = _Link(client, server, self._trap)
            self._links.add(link)
            for act in (self._upwards, self._downwards):
                threading.Thread(target=act, args=(link,), daemon=True).start()

    def _upwards(self, link: _Link) -> None:
        with self._ending(link):
            while data := link.client.recv(CHUNK):
                self._flows.wait()
                if self._silent:
                    continue
                send = self._trapped(link, data)
                if send is None:
                    return
                link.server.sendall(send)
                if len(send) < len(data):
                    return

    def _trapped(self, link: _Link, data: bytes) -> bytes | None:
        """What of the chunk goes upstream; less than all of it: the connection ends there."""
        found = link.watcher.find(data) if link.watcher is not None else None
        trap = link.trap
        if found is None or trap is None or not trap.counts():
            return data
        if isinstance(link.watcher, Bytes):
            return data[: found[0]] or None
        if not trap.applied:
            return data[: found[0]] or None
        link.doomed = True
        return data

    def _downwards(self, link: _Link) -> None:
        with self._ending(link):
            while data := link.server.recv(CHUNK):
                self._flows.wait()
                if link.doomed:
                    return
                if not self._silent:
                    link.client.sendall(data)

    @contextlib.contextmanager
    def _ending(self, link: _Link):  # type: ignore[no-untyped-def]
        try:
            yield
        except OSError:
            pass
        finally:
            link.cut()
            if link in self._links:
                self._links.discard(link)
            else:  # the other direction has ended too
                link.client.close()
                link.server.close()


def _connected(upstream: Address) -> socket.socket:
    if isinstance(upstream, str):
        server = socket.socket(socket.AF_UNIX)
    else:
        server = socket.socket(socket.AF_INET)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.connect(upstream)
    return server
