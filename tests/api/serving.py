"""The API over real HTTP: uvicorn with the product's own ASGI application."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from config.bridge import Bridge


@contextmanager
def served() -> Iterator[str]:
    """The address of a server in a thread of this process; it sees the test database."""
    listening = socket.create_server(("127.0.0.1", 0))
    application = Bridge(get_wsgi_application(), get_asgi_application(), threads=50)
    config = uvicorn.Config(application, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()
        application.close()
    assert not thread.is_alive()


@contextmanager
def served_without_servers() -> Iterator[str]:
    """A server process whose database and broker are nowhere."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    listening.close()
    nowhere = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "BROKER_URL": "redis://127.0.0.1:1/0",
        "DJANGO_SETTINGS_MODULE": "config.settings.test",
    }
    command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(port)]
    process = subprocess.Popen(
        command, env={**os.environ, **nowhere}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, process)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()[0].decode()
        try:
            httpx.get(f"{address}/v1/schema/workflow.json", timeout=5)
        except httpx.TransportError:
            time.sleep(0.05)  # the port is not open yet: there is no event to wait for
        else:
            return
    raise AssertionError("the server did not come up")
