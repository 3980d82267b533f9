"""Mail through Django's configured backend."""

from __future__ import annotations

import hashlib
import smtplib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import make_msgid

from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.message import sanitize_address
from django.core.validators import validate_email

from orchestrator.authoring import Permanent, Transient

MAX_RECIPIENTS = 50
MAX_TEXT_BYTES = 1024 * 1024
DEFAULT_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One mail. ``key`` makes its Message-ID the same at each attempt, so that doubles show.
    ``timeout_s`` bounds each wait for the mail server."""

    to: Sequence[str]
    subject: str
    text: str
    html: str | None = None
    reply_to: str | None = None
    sender: str | None = None
    key: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


def send(letter: Letter) -> str:
    """Hand the letter to the mail server; the answer is its Message-ID.

    ``Permanent`` for an address, subject or recipient that is refused; ``Transient`` when the
    server cannot be reached (``not_applied``) or breaks off.
    """
    _check(letter)
    message_id = _message_id(letter)
    message = EmailMultiAlternatives(
        subject=letter.subject,
        body=letter.text,
        from_email=letter.sender,
        to=list(letter.to),
        reply_to=[letter.reply_to] if letter.reply_to else None,
        headers={"Message-ID": message_id},
        connection=get_connection(timeout=max(0.1, letter.timeout_s)),
    )
    if letter.html is not None:
        message.attach_alternative(letter.html, "text/html")
    _hand_over(message)
    return message_id


def _hand_over(message: EmailMultiAlternatives) -> None:
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise _refused(error) from error
    except smtplib.SMTPResponseException as error:
        text = f"the mail server answered {error.smtp_code}"
        if error.smtp_code >= 500:
            raise Permanent(text) from error
        raise Transient(text, not_applied=True) from error
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise Transient(f"the mail server cannot be reached: {error}", not_applied=True) from error
    except (OSError, smtplib.SMTPException) as error:
        raise Transient(f"the mail server broke off: {type(error).__name__}: {error}") from error


def _refused(error: smtplib.SMTPRecipientsRefused) -> Permanent | Transient:
    codes = {address: answer[0] for address, answer in error.recipients.items()}
    text = "refused by the mail server: " + ", ".join(
        f"{address} ({code})" for address, code in codes.items()
    )
    if all(code >= 500 for code in codes.values()):
        return Permanent(text)
    return Transient(text, not_applied=True)


def _check(letter: Letter) -> None:
    if not 1 <= len(letter.to) <= MAX_RECIPIENTS:
        raise Permanent(f"to: between 1 and {MAX_RECIPIENTS} addresses are needed")
    for name, address in _addresses(letter):
        try:
            validate_email(address)
            sanitize_address(address, "utf-8")
        except (ValidationError, ValueError) as error:
            raise Permanent(f"{name}: {address[:100]!r} is no mail address") from error
    if len(letter.subject.splitlines()) > 1 or any(ord(sign) < 0x20 for sign in letter.subject):
        raise Permanent("subject: one line without control characters is needed")
    if len(letter.text.encode()) + len((letter.html or "").encode()) > MAX_TEXT_BYTES:
        raise Permanent(f"text: more than {MAX_TEXT_BYTES:,} bytes")


def _addresses(letter: Letter) -> list[tuple[str, str]]:
    named = [("to", address) for address in letter.to]
    named += [("reply_to", letter.reply_to)] if letter.reply_to else []
    named += [("sender", letter.sender)] if letter.sender else []
    return named


def _message_id(letter: Letter) -> str:
    domain = letter.to[0].rpartition("@")[2].encode("idna").decode("ascii")
    if letter.key is None:
        return make_msgid(domain=domain)
    return f"<{hashlib.sha256(letter.key.encode()).hexdigest()[:40]}@{domain}>"
