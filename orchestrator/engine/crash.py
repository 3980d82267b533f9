"""Named places where a drill may end the process: at both sides of commits and outside calls.

Costs one dictionary look-up; ``ORCHESTRATOR_CRASH_AT=name[:n]`` makes the n-th hit fatal.
"""

from __future__ import annotations

import os
import signal

_target, _, _count = os.environ.get("ORCHESTRATOR_CRASH_AT", "").partition(":")
_left = [int(_count or 1)]


def crash_point(name: str) -> None:
    """Die here, as by SIGKILL, when a drill asked for it."""
    if name != _target:
        return
    _left[0] -= 1
    if _left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
