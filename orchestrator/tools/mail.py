"""``mail.send``: one mail."""

from __future__ import annotations

from typing import Any

from orchestrator.adapters.mail import DEFAULT_TIMEOUT_S, Letter
from orchestrator.adapters.mail import send as hand_over
from orchestrator.authoring import ToolContext, tool


@tool("mail.send")
def send(  # noqa: PLR0913 - the parameters are the document's words for a mail
    ctx: ToolContext,
    to: str | list[str],
    subject: str,
    text: str,
    html: str | None = None,
    reply_to: str | None = None,
    sender: str | None = None,
) -> dict[str, Any]:
    """Send a mail and answer ``{message_id, to}``.

    ``to`` is one address or a list. With an effect key the Message-ID is made of it, so that a
    mail that had to be sent again is seen as the same one.
    """
    recipients = [to] if isinstance(to, str) else to
    key = None if ctx.idempotency_key is None else f"{ctx.tenant}/{ctx.idempotency_key}"
    message_id = hand_over(
        Letter(
            to=recipients,
            subject=subject,
            text=text,
            html=html,
            reply_to=reply_to,
            sender=sender,
            key=key,
            timeout_s=min(DEFAULT_TIMEOUT_S, ctx.time_left()),
        )
    )
    return {"message_id": message_id, "to": recipients}
