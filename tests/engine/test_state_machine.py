"""The state machine of ``state_machine``, as often as a day allows; nightly by
``STATE_MACHINE_EXAMPLES=20000 STATE_MACHINE_STEPS=50``. A failure prints its steps, and the blob
that brings it back (``STATE_MACHINE_SHRINK=1`` looks for fewer steps, for minutes); what it finds
is kept here, or beside the guards, as a test of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.carrier import Carrier
from tests.engine.state_machine import EngineMachine

EXAMPLES = int(os.environ.get("STATE_MACHINE_EXAMPLES", "20"))
STEPS = int(os.environ.get("STATE_MACHINE_STEPS", "40"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if os.environ.get("STATE_MACHINE_SHRINK"):
    PHASES.append(Phase.shrink)
PROFILE = settings(
    phases=PHASES,
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(600 + EXAMPLES * 10)
def test_whatever_happens_in_whatever_order_every_run_stays_sound(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_state_machine_as_test(lambda: EngineMachine(turn_time), settings=PROFILE)
