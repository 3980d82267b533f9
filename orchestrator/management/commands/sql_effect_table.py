"""``manage.py sql_effect_table``: what a database needs so that ``sql.execute`` may write to it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from psycopg.sql import SQL, Identifier

from orchestrator.adapters.sql import DDL, TABLE


class Command(BaseCommand):
    """Prints SQL; nothing is connected to and nothing is changed."""

    help = "Print the table of effect keys for a database that sql.execute writes to."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """For whom the rights are."""
        parser.add_argument("--role", help="the role of the tool: also print what it is granted")

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the statements, ready for ``psql`` as the database's owner."""
        self.stdout.write(f"{DDL};")
        self.stdout.write(f"REVOKE ALL ON {TABLE} FROM PUBLIC;")
        role = options["role"]
        if role is None:
            return
        if not role.strip() or "\x00" in role:
            raise CommandError("--role: the name of a role is needed")
        grant = SQL("GRANT SELECT, INSERT, UPDATE ON {} TO {};").format(
            Identifier(TABLE), Identifier(role)
        )
        self.stdout.write(grant.as_string())
