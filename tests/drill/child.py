"""``python -m tests.drill.child WHERE SIZE SEED FILE``: one drill in a process of its own.

``WHERE`` is ``package.module:function``. Each line goes to FILE as JSON as soon as it is known.
Without DATABASE_URL and BROKER_URL from outside, a drill starts the servers that it wants to hurt.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

import orjson

from tests.drill.line import Drill, Line, Size

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")


def main() -> int:
    """Run it; 0 when it came to its end, whatever it found."""
    where, size, seed, file = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)  # where does it hang? the frame asks before it ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the drill's blocks clean up
    with Path(file).open("ab", buffering=0) as lines:
        try:
            import django

            django.setup()
            for line in _drill(where)(Size(size), int(seed)):
                lines.write(orjson.dumps(line.as_json()) + b"\n")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this drill's line
            traceback.print_exc()
            last = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
            line = Line("-", f"{where} did not come to its end", 1, {}, [said[:2000]])
            lines.write(orjson.dumps(line.as_json()) + b"\n")
            return 1
    return 0


def _drill(where: str) -> Drill:
    module, _, name = where.partition(":")
    drill: Drill = getattr(import_module(module), name)
    return drill


if __name__ == "__main__":
    sys.exit(main())
