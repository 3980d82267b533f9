"""Who acts in the console: the names that the engine's audit keeps."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest

PERMISSION = "orchestrator.change_run"


def may_operate(request: HttpRequest) -> bool:
    """Whether the user may steer and repair runs. Nobody may edit them."""
    return bool(request.user.has_perm(PERMISSION))


def actor_of(request: HttpRequest) -> str:
    """The user, as histories write it: ``user:ann``."""
    return f"user:{request.user.get_username()}"


def roles_of(request: HttpRequest) -> str:
    """The user's groups in one line, for the audit; whoever may everything says so too."""
    user = request.user
    assert isinstance(user, User)
    groups = list(user.groups.order_by("name").values_list("name", flat=True))
    return ", ".join(["superuser", *groups] if user.is_superuser else groups)
