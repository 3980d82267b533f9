"""What the demo needs before it starts: a tenant, a login, a token, and the gallery published."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth.models import User

from workflows_app.gallery import catalogue
from workflows_app.models import ApiToken, Tenant
from workflows_app.models.token import hash_of
from workflows_app.principal import ALL_SCOPES, Principal
from workflows_app.publishing import YAML, publish

TENANT = "demo"
LOGIN = "demo"
ACTOR = f"user:{LOGIN}"
TOKEN_NAME = "demo"  # noqa: S105 - what the token is called, not its secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who acts in the demo. ``token_file`` holds the API token, for the owner's eyes only."""

    principal: Principal
    password: str
    password_file: Path
    token_file: Path
    workflows: tuple[str, ...]


def assemble(data_dir: Path) -> Cast:
    """Find or make all of it; safe to repeat, and it touches nothing but its own rows."""
    tenant = Tenant.ensure(TENANT)
    password_file = data_dir / "demo_password"
    token_file = data_dir / "demo_token"
    password = _kept(password_file, lambda: secrets.token_urlsafe(12))
    _ensure_login(password)
    _ensure_token(tenant, token_file)
    return Cast(
        principal=Principal(tenant=TENANT, actor=ACTOR, scopes=ALL_SCOPES, via="demo"),
        password=password,
        password_file=password_file,
        token_file=token_file,
        workflows=_publish_gallery(),
    )


def _ensure_login(password: str) -> None:
    user, created = User.objects.get_or_create(
        username=LOGIN, defaults={"is_staff": True, "is_superuser": True}
    )
    if created or not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])


def _ensure_token(tenant: Tenant, path: Path) -> None:
    """Keep the token of the last time while it is good, else issue one in its place."""
    if path.exists():
        digest = hash_of(path.read_text().strip())
        if ApiToken.objects.valid().filter(tenant=tenant, digest=digest).exists():
            return
    _, secret = ApiToken.objects.issue(
        tenant,
        name=TOKEN_NAME,
        actor=ACTOR,
        scopes=sorted(ALL_SCOPES),
        roles=["support_lead", "finance", "moderator", "operator"],
    )
    _write(path, secret)


def _publish_gallery() -> tuple[str, ...]:
    names = []
    for file in catalogue.files():
        published = publish(TENANT, file.read_bytes(), YAML, actor=ACTOR)
        names.append(f"{file.stem} {published.version.number}")
    return tuple(names)


def _kept(path: Path, make: Callable[[], str]) -> str:
    if not path.exists():
        _write(path, make())
    return path.read_text().strip()


def _write(path: Path, secret: str) -> None:
    """Whole or not at all, and never readable by anybody else, not for a moment."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(secret + "\n")
    draft.rename(path)
