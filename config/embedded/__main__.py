"""``python -m config.embedded [FOLDER]``: both servers for ad-hoc work, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from config.embedded import ServerError, servers

STOP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def main() -> None:
    """Print the two URLs as shell exports and hold the servers until a signal."""
    # Blocked before any child is made, so that none of them can be missed.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        if len(sys.argv) > 1:
            _serve(Path(sys.argv[1]))
        else:
            with tempfile.TemporaryDirectory(prefix="orchestrator-") as scratch:
                _serve(Path(scratch))
    except ServerError as error:
        sys.exit(str(error))


def _serve(folder: Path) -> None:
    with servers(folder) as running:
        sys.stdout.write(f"export DATABASE_URL='{running.database_url}'\n")
        sys.stdout.write(f"export BROKER_URL='{running.broker_url}'\n")
        sys.stdout.flush()
        signal.sigwait(STOP)


if __name__ == "__main__":
    main()
