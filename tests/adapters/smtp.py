"""A real mail server on loopback: it keeps what it accepted, and may die at the worst moment."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message


@dataclass
class PostOffice:
    """``letters`` are accepted mails. The next ``cut`` mails are accepted, and the connection ends
    before the sender hears of it."""

    port: int = 0
    letters: list[Message] = field(default_factory=list)
    cut: int = 0

    @property
    def ids(self) -> list[str]:
        return [letter["Message-ID"] for letter in self.letters]


@contextmanager
def post_office() -> Iterator[PostOffice]:
    office = PostOffice()

    class Counter(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 ready")
            while line := self.rfile.readline():
                word = line.split(None, 1)[0].upper() if line.strip() else b""
                if word == b"DATA":
                    if not self.accept():
                        return
                elif word == b"QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

        def accept(self) -> bool:
            self.say("354 go on")
            lines = []
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
            office.letters.append(message_from_bytes(b"".join(lines)))
            if office.cut:
                office.cut -= 1
                return False
            self.say("250 kept")
            return True

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Counter) as server:
        office.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield office
        finally:
            server.shutdown()
            thread.join()
