from __future__ import annotations

import smtplib
import socket

import pytest
from django.core import mail as outbox
from django.core.mail.backends.base import BaseEmailBackend

from orchestrator.adapters.mail import Letter, send
from orchestrator.authoring import Permanent, Transient


def letter(**fields):
    return Letter(
        **{"to": ["ada@example.com"], "subject": "Receipt", "text": "Thank you", **fields}
    )


def test_a_letter_arrives_as_written(settings):
    settings.DEFAULT_FROM_EMAIL = "shop@example.com"

    message_id = send(letter(html="<b>Thank you</b>", reply_to="desk@example.com"))

    (arrived,) = outbox.outbox
    assert (arrived.to, arrived.subject, arrived.body) == (
        ["ada@example.com"],
        "Receipt",
        "Thank you",
    )
    assert arrived.from_email == "shop@example.com"
    assert arrived.reply_to == ["desk@example.com"]
    assert arrived.alternatives[0][0] == "<b>Thank you</b>"
    assert arrived.message()["Message-ID"] == message_id


def test_the_same_key_gives_the_same_message_id():
    first, again, other = (send(letter(key=key)) for key in ("mail:1", "mail:1", "mail:2"))

    assert first == again != other
    assert first.endswith("@example.com>")
    assert send(letter()) != send(letter())


@pytest.mark.parametrize(
    "fields",
    [
        {"to": []},
        {"to": ["nobody"]},
        {"to": ["ada@example.com\nBcc: eve@example.com"]},
        {"to": ["a@example.com, b@example.com"]},
        {"to": ["Ada <ada@example.com>"]},
        {"to": ["ada@example.com"] * 51},
        {"subject": "Hello\nBcc: eve@example.com"},
        {"subject": "Hello\r\n\r\nbody"},
        {"subject": "a\x00b"},
        {"subject": "a\u2028b"},
        {"reply_to": "x\ny@example.com"},
        {"sender": "shop"},
        {"text": "x" * (1024 * 1024 + 1)},
    ],
)
def test_what_no_mail_may_carry_is_permanent(fields):
    with pytest.raises(Permanent):
        send(letter(**fields))

    assert outbox.outbox == []


def test_letters_of_the_world_go_through():
    send(letter(subject="Reçu\xa0: 5 €", text="Grüße"))

    assert outbox.outbox[0].subject == "Reçu\xa0: 5 €"


FAILURES = {
    "refused for good": (
        smtplib.SMTPRecipientsRefused({"ada@example.com": (550, b"no such user")}),
        Permanent,
        None,
    ),
    "refused for now": (
        smtplib.SMTPRecipientsRefused({"ada@example.com": (450, b"busy")}),
        Transient,
        True,
    ),
    "server says no": (smtplib.SMTPDataError(554, b"spam"), Permanent, None),
    "server says later": (smtplib.SMTPDataError(451, b"later"), Transient, True),
    "nobody there": (ConnectionRefusedError(), Transient, True),
    "no such name": (socket.gaierror(), Transient, True),
    "broke off": (smtplib.SMTPServerDisconnected("gone"), Transient, False),
    "too slow": (TimeoutError("timed out"), Transient, False),
}


class FailingBackend(BaseEmailBackend):
    failure: Exception = RuntimeError()

    def send_messages(self, email_messages):
        raise self.failure


@pytest.mark.parametrize("failure", FAILURES)
def test_a_servers_refusal_says_whether_the_mail_may_have_gone(failure, settings, monkeypatch):
    error, kind, not_applied = FAILURES[failure]
    settings.EMAIL_BACKEND = "tests.adapters.test_mail.FailingBackend"
    monkeypatch.setattr(FailingBackend, "failure", error)

    with pytest.raises(kind) as caught:
        send(letter())

    if not_applied is not None:
        assert caught.value.not_applied is not_applied
