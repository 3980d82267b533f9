"""What every confirmation asks for: a reason, and a token that makes a double click one act."""

from __future__ import annotations

from uuid import UUID, uuid4

from django import forms
from django.http import HttpRequest


class ReasonForm(forms.Form):
    """What the confirmation page asks for."""

    reason = forms.CharField(
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "autofocus": True}),
        help_text="Why. It stands in the history with your name.",
    )


def token_of(request: HttpRequest) -> str:
    """The token that the page was sent with, or a new one."""
    try:
        return str(UUID(request.POST.get("token", "")))
    except ValueError:
        return str(uuid4())
