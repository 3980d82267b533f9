"""Mail as an effect, over a real mail server: one Message-ID for one key."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.adapters.mail import Letter, send
from orchestrator.authoring import Transient
from orchestrator.models import Effect
from tests.adapters.smtp import PostOffice
from tests.engine.carrier import Carrier
from tests.engine.runs import events, output, ran, step


def mail(**effect: Any) -> dict[str, Any]:
    given = {"to": "ada@example.com", "subject": "Receipt", "text": "Thank you\n.\nBye"}
    effect = {"key": "mail:1", **effect}
    return {"type": "tool", "tool": "mail.send", "input": given, "effect": effect}


def test_a_mail_goes_out_once_whoever_asks(carrier: Carrier, post: PostOffice) -> None:
    first, second = (ran(carrier, {"a": mail()}) for _ in range(2))

    assert post.ids == [output(first)["a"]["message_id"]]
    assert post.letters[0].get_payload().replace("\r\n", "\n").rstrip() == "Thank you\n.\nBye"
    assert output(second) == output(first)


def test_a_mail_that_was_taken_without_a_word_waits_for_a_person(
    carrier: Carrier, post: PostOffice
) -> None:
    post.cut = 1

    run = ran(carrier, {"a": mail()})

    run.refresh_from_db()
    assert (run.state, run.waiting_for, len(post.letters)) == ("waiting", "review", 1)
    assert Effect.objects.get().status == "in_doubt"


def test_with_resend_it_goes_out_again_under_the_same_message_id(
    carrier: Carrier, post: PostOffice, turn_time: Any
) -> None:
    post.cut = 1
    run = ran(carrier, {"a": mail(on_doubt="resend")})
    assert step(run, "a").state == "retrying"

    turn_time(10)
    engine.beat_once()
    carrier.run_all()

    assert output(run)["a"]["message_id"] == post.ids[0]
    assert len(post.ids) == 2, "the first one was taken, but nobody could know"
    assert len(set(post.ids)) == 1, "whoever receives both sees one mail"
    assert events(run).count("effect.in_doubt") == 1


def test_with_skip_the_run_goes_on_and_says_so(carrier: Carrier, post: PostOffice) -> None:
    post.cut = 1

    run = ran(carrier, {"a": mail(on_doubt="skip")})

    assert output(run) == {"a": None}
    assert (len(post.letters), Effect.objects.get().status) == (1, "given_up")


def test_a_mail_server_that_says_nothing_does_not_hold_the_worker(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = silent.getsockname()
        letter = Letter(to=["ada@example.com"], subject="x", text="x", timeout_s=0.3)

        with pytest.raises(Transient, match="broke off") as caught:
            send(letter)

    assert not caught.value.not_applied
