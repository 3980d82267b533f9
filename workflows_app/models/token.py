"""Bearer tokens: stored hashed, shown once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orchestrator.models.statements import fetch_prepared
from workflows_app.models.tenant import Tenant

MARK = "wf_"
SHOWN = len(MARK) + 6


def hash_of(secret: str) -> str:
    """What is stored of a token: 32 random bytes need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """Tokens, by what authentication asks for."""

    def valid(self) -> ApiTokenQuerySet:
        """Neither revoked nor expired, by the database's clock."""
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), revoked_at__isnull=True
        )

    def touch(self, token_id: int) -> None:
        """Note the use, at most once a minute, so that reading stays cheap."""
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
        self.filter(stale, pk=token_id).update(last_used_at=Now())

    def revoke(self) -> int:
        """End these tokens now; how many were still good."""
        return self.filter(revoked_at__isnull=True).update(revoked_at=Now())

    def issue(
        self,
        tenant: Tenant,
        *,
        name: str,
        actor: str,
        scopes: Sequence[str],
        roles: Sequence[str],
        expires_at: datetime | None = None,
    ) -> tuple[ApiToken, str]:
        """A new token and its secret, which exists nowhere else from now on."""
        secret = MARK + secrets.token_urlsafe(32)
        token = self.create(
            tenant=tenant,
            name=name,
            actor=actor,
            scopes=sorted(set(scopes)),
            roles=sorted(set(roles)),
            expires_at=expires_at,
            digest=hash_of(secret),
            prefix=secret[:SHOWN],
        )
        return token, secret


@dataclass(frozen=True, slots=True)
class Bearer:
    """What authentication needs of a valid token. ``is_stale``: its use was last noted a minute
    ago, or never."""

    pk: int
    tenant: str
    actor: str
    roles: list[str]
    scopes: list[str]
    is_stale: bool


def find_bearer(secret: str) -> Bearer | None:
    """The token of that secret, if it is neither revoked nor expired by the database's clock.

    Found by its hash, so that comparing takes the same time for every wrong one."""
    row = fetch_prepared(_BEARER, [hash_of(secret)])
    if row is None:
        return None
    pk, tenant, actor, roles, scopes, is_stale = row
    return Bearer(pk, tenant, actor, orjson.loads(roles), orjson.loads(scopes), is_stale)


_BEARER = """
SELECT id, tenant_id, actor, roles, scopes,
       last_used_at IS NULL OR last_used_at < now() - interval '1 minute'
  FROM workflows_app_apitoken
 WHERE digest = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""


class ApiToken(models.Model):
    """A caller's credential in one tenant. ``prefix`` lets people tell tokens apart.

    ``actor`` is who acts with it, as history and gates see it (``user:ann``, ``service:shop``).
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    actor = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=16, editable=False)
    scopes = models.JSONField(default=list)
    roles = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
