from __future__ import annotations

import datetime
import socket
import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.adapters import http
from orchestrator.adapters.http import HttpRequest, send
from orchestrator.authoring import Permanent, Transient
from tests.adapters.web import serving


def get(url, **fields):
    return send(HttpRequest(method="GET", url=url, **fields))


@pytest.fixture
def names(monkeypatch):
    """What names resolve to, and how often each was asked for."""
    table: dict[str, list[str]] = {}
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host, port, *args, **kwargs):
        name = host.decode() if isinstance(host, bytes) else host
        if name not in table:
            return real(host, port, *args, **kwargs)
        asked.append(name)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in table[name]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    table["__asked__"] = asked
    return table


def test_an_answer_is_read_whole(web, options):
    options(HTTP_ALLOW_PRIVATE=[f"127.0.0.1:{web.port}"])
    web.answer("/thing", 201, b"hello", X_Kind="test")

    answer = get(f"{web.url}/thing?a=1&b=%20x", headers={"X-Mine": "yes"})

    assert (answer.status, answer.body, answer.headers["x-kind"]) == (201, b"hello", "test")
    seen = web.seen[0]
    assert seen.path == "/thing?a=1&b=%20x"
    assert seen.headers["x-mine"] == "yes"
    assert seen.headers["host"] == f"127.0.0.1:{web.port}"
    assert "content-length" not in seen.headers


def test_a_body_is_sent_with_its_length(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])
    web.answer("/thing")

    send(HttpRequest(method="POST", url=f"{web.url}/thing", body=b"abc"))
    send(HttpRequest(method="POST", url=f"{web.url}/thing"))

    assert [(seen.body, seen.headers["content-length"]) for seen in web.seen] == [
        (b"abc", "3"),
        (b"", "0"),
    ]


def test_a_redirect_is_an_answer_and_not_followed(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])
    web.answer("/from", 302, Location="http://169.254.169.254/latest")

    assert get(f"{web.url}/from").status == 302
    assert len(web.seen) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://192.168.0.1/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://127\u30020\u30020\u30021/",
        "https://127.0.0.1/",
    ],
)
def test_no_spelling_of_an_inner_address_is_reached(url, options):
    options(HTTP_ALLOW_PRIVATE=[])

    # A spelling may also be no valid address at all for this system's resolver.
    with pytest.raises((Permanent, Transient)) as caught:
        get(url, timeout_s=5)

    error = caught.value
    assert isinstance(error, Permanent) or "cannot be resolved" in str(error)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.com/", "only http and https"),
        ("ftp://example.com/", "only http and https"),
        ("//example.com/", "only http and https"),
        ("/path", "only http and https"),
        ("", "only http and https"),
        ("http://", "only http and https"),
        ("http://user:pw@example.com/", "credentials"),
        ("http://example.com:22/", "port 22"),
        ("http://example.com:6379/", "port 6379"),
        ("http://exa mple.com/", "url"),
        ("http://example.com/\r\nX: y", "url"),
        ("http://[::1/", "url"),
        ("http://example.com:99999/", "url"),
    ],
)
def test_an_address_that_is_refused_says_why(url, reason):
    with pytest.raises(Permanent, match=reason):
        get(url)


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X": "a\nb"},
        {"X": "a\x00b"},
        {"X\r\nY": "a"},
        {"X Y": "a"},
        {"": "a"},
        {"Host": "inner"},
        {"Content-Length": "0"},
        {"transfer-encoding": "chunked"},
    ],
)
def test_headers_that_would_change_the_request_are_refused(headers, web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])

    with pytest.raises(Permanent, match="headers"):
        get(web.url, headers=headers)

    assert web.seen == []


def test_a_name_with_one_inner_address_among_its_addresses_is_refused(names):
    names["mixed.example"] = ["93.184.216.34", "127.0.0.1"]

    with pytest.raises(Permanent, match=r"mixed\.example leads to 127\.0\.0\.1"):
        get("http://mixed.example/")


def test_a_name_is_resolved_once_and_its_checked_address_is_called(names, web, options):
    options(HTTP_ALLOW_PRIVATE=[f"svc.example:{web.port}"])
    names["svc.example"] = ["127.0.0.1"]
    web.answer("/")

    assert get(f"http://svc.example:{web.port}/").status == 200

    assert names["__asked__"] == ["svc.example"]
    assert web.seen[0].headers["host"] == f"svc.example:{web.port}"


def test_opening_one_port_of_a_host_opens_no_other(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1:1"], HTTP_PORTS=[80, 443, web.port])

    with pytest.raises(Permanent, match="not an address of the open internet"):
        get(web.url)


def test_proxies_from_the_environment_are_not_used(web, options, monkeypatch):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    web.answer("/")

    assert get(f"{web.url}/").status == 200


@pytest.mark.parametrize(("method", "error"), [("GET", Permanent), ("POST", Transient)])
def test_an_answer_beyond_the_limit_is_cut_off(method, error, web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])
    web.answer("/big", 200, b"x" * 5000)

    with pytest.raises(error, match="more than 1,000 bytes"):
        send(HttpRequest(method=method, url=f"{web.url}/big", max_bytes=1000))


def test_an_answer_that_never_ends_is_cut_off(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])

    def flood(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except OSError:
            handler.close_connection = True

    web.answers["/flood"] = flood

    with pytest.raises(Permanent, match="more than"):
        get(f"{web.url}/flood")


def test_bytes_that_drip_do_not_lengthen_the_deadline(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])

    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        try:
            while not web.stopped.wait(0.02):
                handler.wfile.write(b"x")
        except OSError:
            handler.close_connection = True

    web.answers["/drip"] = drip
    began = time.monotonic()

    with pytest.raises(Transient, match=r"did not answer within 0\.3 s") as caught:
        get(f"{web.url}/drip", timeout_s=0.3)

    assert time.monotonic() - began < 3
    assert caught.value.not_applied is False


def test_a_connection_that_was_never_made_applied_nothing(options):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    options(HTTP_ALLOW_PRIVATE=[f"127.0.0.1:{port}"])

    with pytest.raises(Transient) as caught:
        get(f"http://127.0.0.1:{port}/")

    assert caught.value.not_applied is True


def test_a_connection_that_breaks_off_leaves_the_effect_in_doubt(web, options):
    options(HTTP_ALLOW_PRIVATE=["127.0.0.1"])

    def hang_up(handler):
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    web.answers["/gone"] = hang_up

    with pytest.raises(Transient) as caught:
        send(HttpRequest(method="POST", url=f"{web.url}/gone", body=b"x"))

    assert caught.value.not_applied is False


def test_a_name_that_does_not_resolve_applied_nothing(names, monkeypatch):
    def nobody(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)

    with pytest.raises(Transient, match="cannot be resolved") as caught:
        get("http://nobody.example/")

    assert caught.value.not_applied is True


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """A certificate for ``svc.example`` by an authority of our own that this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "svc.example")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("svc.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    http._tls.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, secret)
    yield context
    http._tls.cache_clear()


def test_the_certificate_is_checked_against_the_name_in_the_address(authority, names, options):
    names["svc.example"] = names["other.example"] = ["127.0.0.1"]
    with serving(tls=authority) as web:
        options(HTTP_ALLOW_PRIVATE=[f"svc.example:{web.port}", f"other.example:{web.port}"])
        web.answer("/")

        assert get(f"https://svc.example:{web.port}/").status == 200
        with pytest.raises(Transient, match="certificate") as caught:
            get(f"https://other.example:{web.port}/")

    assert caught.value.not_applied is True
