"""``manage.py role create|list``: the closed list of roles that a tenant's documents may name."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from workflows_app.management.terminal import add_tenant, tenant_of
from workflows_app.models import Role


class Command(BaseCommand):
    """Roles beside the shipped ones."""

    help = "Create and list roles of a tenant."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``create NAME [--title TEXT] [--tenant T]`` and ``list [--tenant T]``."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="add a role to the tenant's list")
        create.add_argument("name", metavar="NAME")
        create.add_argument("--title", default="", help="what people call it")
        add_tenant(create)
        add_tenant(verbs.add_parser("list", help="show the tenant's roles"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the verb says."""
        tenant = tenant_of(options)
        if options["verb"] == "list":
            for role in Role.objects.filter(tenant=tenant):
                self.stdout.write(role.name)
            return
        role = Role(tenant_id=tenant, name=options["name"], title=options["title"])
        try:
            role.full_clean()
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        role.save()
        self.stdout.write(f"{tenant} has the role {role.name} now.")
