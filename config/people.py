"""What the gate asks about people of the console: who holds which role in a tenant."""

from __future__ import annotations

from django.contrib.auth.models import User

from workflows_app.models import Membership


def roles_of(user: User, tenant: str) -> list[str]:
    """The roles of ``user`` in ``tenant``; none without a membership."""
    member = Membership.objects.filter(user=user, tenant_id=tenant).first()
    return [] if member is None else list(member.roles)
