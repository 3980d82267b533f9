"""``manage.py token create|list|revoke``: credentials of the API."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.core.problems import suggestion
from workflows_app.management.terminal import add_tenant, tenant_of
from workflows_app.models import ApiToken, Role, Tenant
from workflows_app.principal import ALL_SCOPES

ALL = "all"


class Command(BaseCommand):
    """A new token is printed once, alone on standard output; only its hash is kept."""

    help = "Create, list and revoke API tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``create NAME --scope … [--role …] [--tenant T] [--actor A] [--days N]``."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a token and print it, once")
        create.add_argument("name", metavar="NAME", help="what it is for")
        create.add_argument("--tenant", help="made when it is new (default: the only one)")
        scopes = f"{', '.join(sorted(ALL_SCOPES))}, or {ALL}"
        create.add_argument("--scope", action="extend", nargs="+", default=[], help=scopes)
        create.add_argument("--role", action="extend", nargs="+", default=[], help="for gates")
        create.add_argument("--actor", help="who acts with it (default: token:NAME)")
        create.add_argument("--days", type=int, help="until it expires (default: never)")
        add_tenant(verbs.add_parser("list", help="show tokens, never their secrets"))
        revoke = verbs.add_parser("revoke", help="end a token")
        revoke.add_argument("prefix", metavar="PREFIX", help="as `token list` shows it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the verb says."""
        match options["verb"]:
            case "create":
                self._create(options)
            case "list":
                self._list(tenant_of(options))
            case _:
                self._revoke(options["prefix"])

    def _create(self, options: dict[str, Any]) -> None:
        named = options["tenant"]
        tenant = Tenant.ensure(named or tenant_of(options))
        days = options["days"]
        token, secret = ApiToken.objects.issue(
            tenant,
            name=options["name"],
            actor=options["actor"] or f"token:{options['name']}",
            scopes=_scopes(_words(options["scope"])),
            roles=_roles(tenant, _words(options["role"])),
            expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        )
        self.stderr.write(
            f"Token {token.name!r} of tenant {tenant}, for {', '.join(token.scopes)}"
            f"{f', roles {chr(44).join(token.roles)}' if token.roles else ''}."
            " It is shown this once:"
        )
        self.stdout.write(secret)

    def _list(self, tenant: str) -> None:
        for token in ApiToken.objects.filter(tenant=tenant):
            state = "revoked" if token.revoked_at else "valid"
            self.stdout.write(f"{token.prefix}…  {state:<8} {token.name:<24} {token.actor}")

    def _revoke(self, prefix: str) -> None:
        found = ApiToken.objects.filter(prefix=prefix.rstrip("…"))
        if len(found) != 1:
            raise CommandError(f"{len(found)} tokens begin with {prefix!r}; see `token list`.")
        found.revoke()
        self.stdout.write(f"{found[0]} is revoked.")


def _words(given: Iterable[str]) -> list[str]:
    """Values may be repeated, listed, or joined by commas."""
    return [word for part in given for word in part.split(",") if word]


def _scopes(words: list[str]) -> list[str]:
    if not words:
        raise CommandError(f"Name what it may do: --scope {' '.join(sorted(ALL_SCOPES))} (or all)")
    if ALL in words:
        return sorted(ALL_SCOPES)
    for word in words:
        if word not in ALL_SCOPES:
            raise CommandError(f"There is no scope {word!r}: {suggestion(word, ALL_SCOPES)}")
    return words


def _roles(tenant: Tenant, words: list[str]) -> list[str]:
    known = set(Role.objects.filter(tenant=tenant).values_list("name", flat=True))
    for word in words:
        if word not in known:
            raise CommandError(
                f"Tenant {tenant} has no role {word!r}: {suggestion(word, known)}"
                " (`manage.py role create` adds one)"
            )
    return words
