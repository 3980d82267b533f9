"""``python -m bench [--quick] [--profile] [FIGURE…]``: servers of its own, then the measuring."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

from bench.marks import FILE_VARIABLE
from bench.options import (
    FIGURES,
    PLAIN_PORT_VARIABLE,
    PORT_VARIABLE,
    ROUTES,
    add_options,
    unknown_names,
)
from config import embedded
from config.embedded.valkey import free_port
from config.env import BASE_DIR

FOLDER = BASE_DIR / ".data" / "bench"


def main() -> int:
    """Run durable servers in a folder of this run, and measure on them; the exit status."""
    parser = ArgumentParser(prog="python -m bench", description=__doc__)
    add_options(parser)
    if unknown := unknown_names(parser.parse_args().names):
        parser.error(f"no figure is called {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = FOLDER / str(os.getpid())
    try:
        with embedded.servers(folder, statistics=True) as running:
            return _measure(folder, running)
    except embedded.ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(folder: Path, running: embedded.Urls) -> int:
    env = {
        **os.environ,
        "PYTHONPATH": str(BASE_DIR),
        "DJANGO_SETTINGS_MODULE": "config.settings.prod",
        "SECRET_KEY": secrets.token_urlsafe(48),
        "DATABASE_URL": running.database_url,
        "BROKER_URL": running.broker_url,
        "DATA_DIR": str(folder),
        "EXTRA_APPS": "bench",
        "ORCHESTRATOR_QUEUE_ROUTES": ROUTES,
        "TASK_EVENTS": "0",
        "LOG_LEVEL": "WARNING",
        FILE_VARIABLE: str(folder / "marks"),
        PORT_VARIABLE: str(free_port()),
        PLAIN_PORT_VARIABLE: str(free_port()),
        "BENCH_POSTGRES_PID": str(running.postgres.pid),
        "BENCH_VALKEY_PID": str(running.valkey.pid),
    }
    manage = [sys.executable, str(BASE_DIR / "manage.py")]
    migrated = subprocess.run(
        [*manage, "migrate", "--no-input", "--verbosity=0"], env=env, cwd=BASE_DIR, check=False
    )
    if migrated.returncode:
        return migrated.returncode
    measured = subprocess.run([*manage, "measure", *sys.argv[1:]], env=env, check=False)
    return measured.returncode


if __name__ == "__main__":
    sys.exit(main())
