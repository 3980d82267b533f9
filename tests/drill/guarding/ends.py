"""Guards of the end, and the sweeps."""

from __future__ import annotations

from tests.drill.guarding.guard import APPLY, Cut, Guard

HERE = "tests/engine/test_guards.py::"


def _sweep(name: str, line: str, *, what: str, tests: tuple[str, ...]) -> Guard:
    cut = Cut("orchestrator/engine/pulse.py", line, "")
    return Guard(name=name, what=what, cuts=(cut,), tests=tests)


END_GUARDS = (
    Guard(
        name="terminal is final",
        what="no decision is written over a run that has ended, whatever its version",
        cuts=(
            Cut(
                APPLY,
                "\n      AND r.state NOT IN ('completed', 'failed', 'cancelled', 'timed_out')\n"
                "    RETURNING",
                "\n    RETURNING",
            ),
        ),
        tests=(f"{HERE}test_a_run_that_is_over_takes_no_write_even_of_its_last_version",),
    ),
    Guard(
        name="terminal is final for people",
        what="nobody pauses, resumes or cancels a run that has ended",
        cuts=(
            Cut(
                "orchestrator/engine/control.py",
                "        if run.ended:\n",
                "        if run is None:\n",
            ),
        ),
        tests=(
            f"{HERE}test_nobody_reopens_a_run_that_completed",
            "tests/engine/test_control.py"
            "::test_pausing_twice_or_ended_runs_and_unknown_ones_is_refused",
        ),
    ),
    Guard(
        name="terminal is final for signals",
        what="no signal is taken for a run that has ended",
        cuts=(
            Cut(
                "orchestrator/engine/inbox.py",
                "        if run.ended:\n            raise",
                "        if run is None:\n            raise",
            ),
        ),
        tests=("tests/engine/test_waits.py::test_no_signal_reaches_a_run_that_is_over",),
    ),
    Guard(
        name="terminal is final for repair",
        what="a repair takes up what failed or was cancelled, and nothing that completed",
        cuts=(
            Cut(
                "orchestrator/engine/repair.py",
                "if run.state not in _STATES[action] or (run.snapshot.verdict and not run.ended):",
                "if run.snapshot.verdict and not run.ended:",
            ),
        ),
        tests=(
            "tests/engine/test_repair.py::test_a_completed_run_and_an_undone_one_are_not_taken_up",
        ),
    ),
    Guard(
        name="terminal is final in the table of moves",
        what="the table of legal moves names none from an end",
        cuts=(
            Cut(
                "orchestrator/core/states.py",
                "    _R.COMPLETED: frozenset(),\n",
                "    _R.COMPLETED: frozenset({_R.RUNNING}),\n",
            ),
        ),
        tests=("tests/core/test_states.py::test_a_run_that_is_over_never_moves_again",),
    ),
)

SWEEP_GUARDS = (
    _sweep(
        "READY sweep",
        '    ("ready", recovery.redispatch_stale),\n',
        what="READY steps whose message was lost are sent again",
        tests=(
            "tests/engine/test_recovery.py"
            "::test_dropping_all_messages_at_any_point_costs_time_only",
        ),
    ),
    _sweep(
        "lease sweep",
        '    ("leases", recovery.expire_leases),\n',
        what="steps of dead workers are taken over once their lease is over",
        tests=("tests/engine/test_recovery.py::test_a_step_of_a_dead_worker_is_taken_over",),
    ),
    _sweep(
        "timer sweep",
        '    ("timers", timers.fire_due),\n',
        what="due timers fire",
        tests=("tests/engine/test_waits.py::test_a_wait_for_a_time_is_never_early_and_ends_once",),
    ),
    _sweep(
        "overdue sweep",
        '    ("overdue", timers.end_overdue),\n',
        what="runs whose own time is over end",
        tests=("tests/engine/test_waits.py::test_a_run_over_its_working_time_is_timed_out",),
    ),
    _sweep(
        "outbox sweep",
        '    ("outbox", outbox.sweep),\n',
        what="messages between runs that their writer left behind are handled",
        tests=("tests/engine/test_recovery.py::test_a_lost_outbox_message_is_found_by_the_sweep",),
    ),
    Guard(
        name="lease looked at under the lock",
        what="a sweep ends an attempt only if its lease is still over once the run is locked",
        cuts=(
            Cut(
                "orchestrator/engine/recovery.py",
                "if run is None or run.ended or not sweeps.lease_is_over(step_id, fence):",
                "if run is None or run.ended:",
            ),
        ),
        tests=(f"{HERE}test_a_sweep_that_looked_earlier_ends_no_living_attempt",),
    ),
    Guard(
        name="timer looked at under the lock",
        what="a sweep fires a timer only if it is still there once the run is locked",
        cuts=(
            Cut(
                "orchestrator/engine/timers.py",
                "if run is None or not sweeps.is_due(timer.id):",
                "if run is None:",
            ),
        ),
        tests=(f"{HERE}test_a_sweep_that_looked_earlier_fires_no_timer_again",),
    ),
    Guard(
        name="outbox dedupe",
        what="a message is deleted in the transaction that handles it, by one of many",
        cuts=(
            Cut(
                "orchestrator/models/outbox_rows.py",
                '"DELETE FROM orchestrator_outbox WHERE id = ("\n'
                '            "  SELECT id FROM orchestrator_outbox WHERE id = %s FOR UPDATE SKIP '
                'LOCKED)"\n            " RETURNING topic, run_id, payload",',
                '"SELECT topic, run_id, payload FROM orchestrator_outbox WHERE id = %s",',
            ),
        ),
        tests=(f"{HERE}test_a_message_of_the_outbox_is_handled_once_though_many_found_it",),
    ),
    Guard(
        name="outbox goes with its handling",
        what="a message whose handler died is still there",
        cuts=(
            Cut(
                "orchestrator/engine/outbox.py",
                'with Unit("outbox"):\n        message = outbox_rows.take(number)\n',
                'message = outbox_rows.take(number)\n    with Unit("outbox"):\n',
            ),
        ),
        tests=(f"{HERE}test_a_message_whose_handler_died_is_still_there",),
    ),
)
