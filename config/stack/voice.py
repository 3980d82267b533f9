"""What the supervisor says: to the terminal while there is one, always to a log."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path


class Voice:
    """Prints lines and keeps them in ``log``; a closed terminal or pipe does not stop it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._terminal = True

    def say(self, line: str) -> None:
        """Print one line, as soon as it is said."""
        with self._log.open("a") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n")
        if not self._terminal:
            return
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError:
            # `| tee` dies first on Ctrl-C and a closed terminal answers EIO: the log goes on.
            self._terminal = False
