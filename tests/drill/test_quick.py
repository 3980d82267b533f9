"""The quick drills are part of the suite: their table is what a failure shows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from config.env import BASE_DIR

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


def test_every_promise_that_a_quick_drill_tries_holds() -> None:
    command = [sys.executable, "-m", "tests.drill", "--size", "quick"]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{done.stdout}"
