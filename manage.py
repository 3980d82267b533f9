#!/usr/bin/env python
"""The one command line of the product; `python manage.py help` lists the commands."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db.utils import InterfaceError, OperationalError

from config.env import BadEnvironmentError, environment
from config.servers import find_servers


def main() -> None:
    """Run one command; say in one sentence when the surroundings are not fit for it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.dev")
    try:
        environment()
        execute_from_command_line(sys.argv)
    except (BadEnvironmentError, ImproperlyConfigured) as error:
        sys.exit(str(error))
    except (OperationalError, InterfaceError) as error:
        if "--traceback" in sys.argv or not _is_unreachable(error):
            raise
        sys.exit(_no_database(error))


def _is_unreachable(error: Exception) -> bool:
    return any(word in str(error) for word in ("connection", "connect"))


def _no_database(error: Exception) -> str:
    if find_servers(environment()).known:
        return f"The database does not answer: {str(error).splitlines()[0]}"
    return "No stack runs in this checkout: start it with `make up`, or set DATABASE_URL."


if __name__ == "__main__":
    main()
