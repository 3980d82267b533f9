"""The tools in the box, called the way a step calls them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.core import mail as outbox

from orchestrator.authoring import registry
from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.executors.tool import ToolExecutor
from orchestrator.tools.discovery import discover_tools
from tests.executors.builders import step_context


def run(name, given, **context):
    return ToolExecutor().execute(
        step_context({"type": "tool", "tool": name}, input=given, **context)
    )


@pytest.fixture
def site(web, options):
    options(HTTP_ALLOW_PRIVATE=[f"127.0.0.1:{web.port}"])
    return web


def test_the_box_is_found_and_finding_it_again_changes_nothing():
    before = registry.names()

    discover_tools()

    assert registry.names() == before
    assert {"file.read", "file.write", "http.request", "mail.send", "transform"} <= set(before)


@pytest.mark.parametrize("name", ["file.read", "file.write", "http.request", "mail.send"])
def test_every_tool_says_what_it_does(name):
    spec = registry.get(name)

    assert spec.doc
    assert spec.input_schema["additionalProperties"] is False
    assert spec.output_schema == {"additionalProperties": True, "type": "object"}


def test_a_json_answer_is_parsed(site):
    site.answer("/orders", body=b'{"id": 9007199254740993}', Content_Type="application/json")

    outcome = run("http.request", {"url": f"{site.url}/orders", "query": {"q": "a b", "n": 1}})

    assert isinstance(outcome, Succeeded)
    assert outcome.output["status"] == 200
    assert outcome.output["json"] == {"id": 9007199254740993}
    assert outcome.output["text"] is None
    assert outcome.output["headers"]["content-type"] == "application/json"
    assert site.seen[0].path in ("/orders?q=a+b&n=1", "/orders?q=a%20b&n=1")


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"plain", "text/plain", {"text": "plain"}),
        (b"{broken", "application/json", {"text": "{broken"}),
        (b'{"n": NaN}', "application/json", {"text": '{"n": NaN}'}),
        (b"[" * 100_000, "application/problem+json", {"text": "[" * 100_000}),
        (b"\xff\x00", "image/png", {"base64": "/wA="}),
        (b"a\x00b", "text/plain", {"base64": "YQBi"}),
        (b"", "application/json", {"text": ""}),
    ],
)
def test_other_answers_come_as_text_or_base64(site, body, kind, expected):
    site.answer("/thing", body=body, Content_Type=kind)

    outcome = run("http.request", {"url": f"{site.url}/thing"})

    assert isinstance(outcome, Succeeded)
    shapes = {name: outcome.output[name] for name in ("json", "text", "base64")}
    assert shapes == {"json": None, "text": None, "base64": None, **expected}


def test_an_effects_key_the_trace_and_json_are_sent(site):
    site.answer("/charges", 201)

    run(
        "http.request",
        {"url": f"{site.url}/charges", "method": "POST", "json": {"amount": 5}},
        idempotency_key="pay:A-1",
    )

    (seen,) = site.seen
    assert json.loads(seen.body) == {"amount": 5}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["idempotency-key"] == "pay:A-1"
    assert seen.headers["traceparent"].startswith("00-0af7651916cd43dd")


def test_without_an_effect_no_key_is_sent_and_given_headers_win(site):
    site.answer("/thing")

    run(
        "http.request",
        {
            "url": f"{site.url}/thing",
            "method": "PUT",
            "body": "<a/>",
            "headers": {"content-type": "text/xml", "User-Agent": "mine"},
        },
    )

    (seen,) = site.seen
    assert "idempotency-key" not in seen.headers
    assert (seen.headers["content-type"], seen.headers["user-agent"]) == ("text/xml", "mine")
    assert seen.body == b"<a/>"


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (301, ErrorClass.PERMANENT),
        (400, ErrorClass.PERMANENT),
        (404, ErrorClass.PERMANENT),
        (408, ErrorClass.TRANSIENT),
        (429, ErrorClass.RATE_LIMIT),
        (500, ErrorClass.TRANSIENT),
        (503, ErrorClass.TRANSIENT),
    ],
)
def test_a_status_says_what_kind_of_failure_it_is(site, status, error_class):
    site.answer("/thing", status, b"no  such\nthing", Location="/other")

    outcome = run("http.request", {"url": f"{site.url}/thing"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is error_class
    assert f"answered {status}: no such thing" in outcome.error.message
    expected = run("http.request", {"url": f"{site.url}/thing", "expect": [status]})
    assert isinstance(expected, Succeeded)
    assert expected.output["status"] == status


@pytest.mark.parametrize(("status"), [429, 503])
def test_retry_after_is_honoured_in_seconds_and_as_a_date(site, status):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    site.answer("/seconds", status, Retry_After="7")
    site.answer("/date", status, Retry_After=later)
    site.answer("/none", status)
    site.answer("/broken", status, Retry_After="soon")

    waits = [
        run("http.request", {"url": f"{site.url}/{path}"}).retry_after
        for path in ("seconds", "date", "none", "broken")
    ]

    assert waits[0] == 7
    assert 80 < waits[1] <= 90
    assert waits[2:] == [None, None]


def test_the_step_ends_a_call_that_would_take_longer(site):
    def hang(handler):
        site.stopped.wait(10)
        handler.close_connection = True

    site.answers["/slow"] = hang

    outcome = run("http.request", {"url": f"{site.url}/slow"}, timeout_s=0.2)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.TRANSIENT
    site.stopped.set()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"url": 5},
        {"url": "http://example.com", "method": "TRACE"},
        {"url": "http://example.com", "headers": {"X": 1}},
        {"url": "http://example.com", "timeout_s": 0},
        {"url": "http://example.com", "redirects": True},
    ],
)
def test_arguments_that_do_not_fit_are_a_schema_error(given):
    outcome = run("http.request", given)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.SCHEMA_ERROR


def test_inner_addresses_are_permanent_failures(options):
    options(HTTP_ALLOW_PRIVATE=[])

    outcome = run("http.request", {"url": "http://169.254.169.254/latest"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT


def test_a_mail_is_sent_to_one_or_many():
    one = run("mail.send", {"to": "ada@example.com", "subject": "Hi", "text": "There"})
    many = run(
        "mail.send",
        {"to": ["ada@example.com", "bob@example.com"], "subject": "Hi", "text": "There"},
        idempotency_key="mail:A-1",
    )

    assert isinstance(one, Succeeded)
    assert isinstance(many, Succeeded)
    assert many.output["to"] == ["ada@example.com", "bob@example.com"]
    assert [message.extra_headers["Message-ID"] for message in outbox.outbox] == [
        one.output["message_id"],
        many.output["message_id"],
    ]


def test_a_file_is_written_and_read(tmp_path, options):
    options(FILES_ROOT=tmp_path)

    written = run("file.write", {"path": "a/b.txt", "text": "Grüße"})
    read = run("file.read", {"path": "a/b.txt"})
    run("file.write", {"path": "raw", "base64": "/wA="})
    raw = run("file.read", {"path": "raw"})

    assert isinstance(written, Succeeded)
    assert written.output["size"] == 7
    described = {name: written.output[name] for name in ("path", "size", "sha256")}
    assert written.output["external_ref"] == f"sha256:{described['sha256']}"
    assert read.output == {**described, "text": "Grüße", "base64": None}
    assert (raw.output["text"], raw.output["base64"]) == (None, "/wA=")


@pytest.mark.parametrize(
    "given",
    [{"path": "a"}, {"path": "a", "text": "x", "base64": "eA=="}, {"path": "a", "base64": "x"}],
)
def test_what_to_write_is_given_exactly_once(tmp_path, options, given):
    options(FILES_ROOT=tmp_path)

    outcome = run("file.write", given)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT


def test_transform_answers_its_input():
    assert run("transform", {"a": [1, None]}) == Succeeded(output={"a": [1, None]})
    assert run("transform", {}) == Succeeded(output={})
