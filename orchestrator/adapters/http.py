"""HTTP calls of tools: one address, checked; one deadline; a bounded answer; no redirects.

A name is resolved once, every address it gives is checked, and the connection goes to the checked
address, while ``Host`` and the TLS name stay those of the URL: a name that changes its address
between check and connect gains nothing. Proxies from the environment are not used.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import certifi
import httpcore
import httpx
from django.conf import settings

from orchestrator.adapters.addresses import is_public
from orchestrator.authoring import Permanent, Transient

MAX_ANSWER_BYTES = 1024 * 1024
DEFAULT_PORTS = (80, 443)
CONNECT_TIMEOUT_S = 10.0
_WITH_BODY = ("POST", "PUT", "PATCH")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_CLOSED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)


class TooSlow(Transient):
    """Nothing answered within the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request. ``timeout_s`` bounds the whole exchange, ``max_bytes`` the answer's body.
    ``own``: the address stands in the installation's settings, so any port and host is open."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float = 30.0
    max_bytes: int = MAX_ANSWER_BYTES
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer of whatever status; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def send(request: HttpRequest) -> HttpResponse:
    """Send ``request`` and read the answer.

    ``Permanent`` when the URL, a header or the address is refused; ``Transient`` when nothing
    answers in time, with ``not_applied`` when the request certainly never left.
    """
    url = _checked_url(request.url, own=request.own)
    headers = _checked_headers(request.headers, url)
    network = _Network(ends_at=time.monotonic() + request.timeout_s, own=request.own)
    try:
        with httpcore.ConnectionPool(ssl_context=_tls(), network_backend=network) as pool:
            return _exchange(pool, request, url=url, headers=headers)
    except httpcore.TimeoutException as error:
        raise TooSlow(
            f"{url.host} did not answer within {request.timeout_s:g} s",
            not_applied=not network.connected,
        ) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise Transient(
            f"the connection to {url.host} failed: {type(error).__name__}: {error}",
            not_applied=not network.connected,
        ) from error


def _exchange(
    pool: httpcore.ConnectionPool,
    request: HttpRequest,
    *,
    url: httpx.URL,
    headers: list[tuple[bytes, bytes]],
) -> HttpResponse:
    target = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    # Without content no length is told; a POST without a body has one of zero (RFC 9110, 8.6).
    content = request.body if request.body or request.method in _WITH_BODY else None
    with pool.stream(
        request.method.encode("ascii"), target, headers=headers, content=content
    ) as answer:
        return HttpResponse(
            status=answer.status,
            headers=_answer_headers(answer.headers),
            body=_bounded(answer.iter_stream(), request),
        )


def _bounded(chunks: Iterable[bytes], request: HttpRequest) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > request.max_bytes:
            raise _too_large(request)
    return bytes(body)


def _too_large(request: HttpRequest) -> Permanent | Transient:
    text = f"the answer has more than {request.max_bytes:,} bytes"
    # After anything but a question, the other side may well have acted: not a clean failure.
    return Permanent(text) if request.method in ("GET", "HEAD") else Transient(text)


def _answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _checked_url(text: str, *, own: bool = False) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Permanent(f"url: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise Permanent(f"url: only http and https with a host name are allowed, not {text[:100]}")
    if not _HOST.fullmatch(url.raw_host.decode("ascii")):
        raise Permanent(f"url: {url.host[:100]!r} is no host name")
    if url.userinfo:
        raise Permanent("url: put the credentials into a header, not into the address")
    port = url.port or (443 if url.scheme == "https" else 80)
    ports = _option("HTTP_PORTS", DEFAULT_PORTS)
    if not own and port not in ports and not _is_allowed(url.host, port):
        raise Permanent(f"url: port {port} is not open for tools (setting HTTP_PORTS)")
    return url


def _checked_headers(headers: Mapping[str, str], url: httpx.URL) -> list[tuple[bytes, bytes]]:
    checked = [(b"Host", url.netloc), (b"Accept-Encoding", b"identity")]
    for name, value in headers.items():
        if name.lower() in _CLOSED_HEADERS:
            raise Permanent(f"headers: {name} is set by the connection itself")
        if not name or not all(0x20 < ord(sign) < 0x7F and sign != ":" for sign in name):
            raise Permanent(f"headers: {name[:50]!r} is no header name")
        if any(ord(sign) < 0x20 or ord(sign) == 0x7F for sign in value):
            raise Permanent(f"headers: the value of {name} contains control characters")
        checked.append((name.encode("ascii"), value.encode("utf-8")))
    return checked


class _Network(httpcore.NetworkBackend):
    """Connects to checked addresses only and holds every wait to one deadline."""

    def __init__(self, *, ends_at: float, own: bool = False) -> None:
        self.ends_at = ends_at
        self.own = own
        self.connected = False
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first address of ``host`` that answers."""
        del timeout, local_address
        failure: httpcore.NetworkError | httpcore.TimeoutException | None = None
        for address in _addresses(host, port, own=self.own):
            limit = min(CONNECT_TIMEOUT_S, _left(self.ends_at, httpcore.ConnectTimeout))
            try:
                stream = self._sockets.connect_tcp(
                    address, port, timeout=limit, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            return _Stream(stream, network=self)
        raise failure or httpcore.ConnectError(f"no address of {host} answers")


class _Stream(httpcore.NetworkStream):
    """A connection whose reads and writes end at the deadline, however slowly bytes drip."""

    def __init__(self, stream: httpcore.NetworkStream, *, network: _Network) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        del timeout
        return self._stream.read(
            max_bytes, timeout=_left(self._network.ends_at, httpcore.ReadTimeout)
        )

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        del timeout
        # From the first byte on nobody can say that the other side saw nothing.
        self._network.connected = True
        self._stream.write(buffer, timeout=_left(self._network.ends_at, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        del timeout
        limit = min(CONNECT_TIMEOUT_S, _left(self._network.ends_at, httpcore.ConnectTimeout))
        stream = self._stream.start_tls(ssl_context, server_hostname, timeout=limit)
        return _Stream(stream, network=self._network)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _addresses(host: str, port: int, *, own: bool = False) -> list[str]:
    """The addresses of ``host``, all of them checked; ``Permanent`` if one is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"the name {host} cannot be resolved: {error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if own or _is_allowed(host, port):
        return addresses
    closed = [address for address in addresses if not is_public(address)]
    if closed:
        raise Permanent(
            f"url: {host} leads to {closed[0]}, which is not an address of the open internet; "
            "the setting HTTP_ALLOW_PRIVATE opens single hosts"
        )
    return addresses


def _is_allowed(host: str, port: int) -> bool:
    allowed = _option("HTTP_ALLOW_PRIVATE", ())
    return host in allowed or f"{host}:{port}" in allowed


def _option(name: str, default: Iterable[Any]) -> Iterable[Any]:
    options: Mapping[str, Any] = getattr(settings, "ORCHESTRATOR", {})
    value: Iterable[Any] = options.get(name, default)
    return value


def _left(ends_at: float, error: type[httpcore.TimeoutException]) -> float:
    left = ends_at - time.monotonic()
    if left <= 0:
        raise error("the time is over")
    return left


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # The machine's own authorities (a company's among them) and, where it has none, the usual ones.
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
