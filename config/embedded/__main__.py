"""``python -m config.embedded [FOLDER]``: both servers for ad-hoc work, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from config.embedded import ServerError, servers


def main() -> None:
    """Print the two URLs as shell exports and hold the servers until a signal."""
    stop = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        signal.pthread_sigmask(signal.SIG_BLOCK, stop)
        try:
            with servers(folder) as running:
                sys.stdout.write(f"export DATABASE_URL='{running.database_url}'\n")
                sys.stdout.write(f"export BROKER_URL='{running.broker_url}'\n")
                sys.stdout.flush()
                signal.sigwait(stop)
        except ServerError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
