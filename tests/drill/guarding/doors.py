"""Guards of what comes in from outside, and of the history."""

from __future__ import annotations

from tests.drill.guarding.guard import APPLY, Cut, Guard

HERE = "tests/engine/test_guards.py::"
SECOND = "tests/engine/test_second_rows.py::"


def _constraint(table: str, constraint: str, *, what: str, name: str) -> Guard:
    return Guard(
        name=name,
        what=what,
        drop=f"ALTER TABLE {table} DROP CONSTRAINT {constraint}",
        tests=(f"{SECOND}test_the_database_refuses_a_second_row[{constraint}]",),
    )


def _index(index: str, *, what: str, name: str) -> Guard:
    return Guard(
        name=name,
        what=what,
        drop=f"DROP INDEX {index}",
        tests=(f"{SECOND}test_the_database_refuses_a_second_row[{index}]",),
    )


DOOR_GUARDS = (
    Guard(
        name="start key",
        what="the same key and body find the first start",
        cuts=(
            Cut(
                "workflows_app/models/start_rows.py",
                "None if run_id is None else Earlier(fingerprint, run_id, orjson.loads(answer)),",
                "None,",
            ),
        ),
        tests=(
            "tests/api/test_start.py"
            "::test_the_same_again_answers_200_with_the_same_body_and_starts_nothing",
        ),
    ),
    Guard(
        name="start key in flight",
        what="of several starts with one key at once, one begins and the others hear to wait",
        cuts=(
            Cut(
                "workflows_app/migrations/0002_take_start_key.py",
                "    IF NOT pg_try_advisory_xact_lock(hashtextextended(\n"
                "        concat_ws(chr(31), 'start', p_tenant, p_workflow, p_key), 0)) THEN",
                "    IF false THEN",
            ),
        ),
        tests=("tests/api/test_wire.py::test_409_with_retry_after_while_the_key_is_in_flight",),
    ),
    _constraint(
        "workflows_app_startkey",
        "workflows_start_key_once",
        name="unique start key",
        what="the database holds one start for a key",
    ),
    Guard(
        name="signal dedupe",
        what="the same signal again is no news",
        cuts=(
            Cut(
                "orchestrator/engine/inbox.py",
                "        if known is not None:\n",
                "        if known is not None and run.ended:\n",
            ),
        ),
        tests=(
            "tests/engine/test_waits.py::test_the_same_signal_again_is_no_news",
            "tests/engine/test_concurrency.py::test_the_same_signal_from_many_is_one",
        ),
    ),
    _constraint(
        "orchestrator_signal",
        "orchestrator_signal_once",
        name="unique signal id",
        what="the database holds one signal for an id",
    ),
    Guard(
        name="early answer",
        what="a step that parks takes the answer that came before it",
        cuts=(
            Cut(
                "orchestrator/engine/steps.py",
                "    if isinstance(outcome, Waiting):\n        inbox.answer_early(",
                "    if isinstance(outcome, Expanded):\n        inbox.answer_early(",
            ),
        ),
        tests=(
            "tests/engine/test_waits.py::test_no_signal_is_lost_between_looking_and_parking",
            "tests/engine/test_waits.py::test_a_signal_may_come_before_its_waiter",
        ),
    ),
    Guard(
        name="a gate decides once",
        what="of many who decide at once one is first, and the others are told",
        cuts=(
            Cut(
                "approvals_app/sql/gates.sql",
                "AND r.tenant = p_tenant FOR UPDATE;",
                "AND r.tenant = p_tenant;",
            ),
        ),
        tests=(
            "tests/approvals/test_deciding.py::test_of_fifty_people_who_press_at_once_one_decides",
        ),
    ),
    Guard(
        name="a gate decides once in the engine",
        what="a decision ends the wait of its own round, and only while the step waits",
        cuts=(
            Cut(
                "orchestrator/engine/inbox.py",
                'if row.state != StepState.WAITING or row.waiting_for != "person":\n'
                "            return False",
                "if row.attempt < 0:\n            return False",
            ),
        ),
        tests=(f"{HERE}test_the_engine_takes_one_decision_for_a_gate_whoever_brings_it",),
    ),
    _index(
        "approvals_request_one_open",
        name="one open request",
        what="the database holds one open request for a gate",
    ),
    _constraint(
        "approvals_app_decision",
        "approvals_decision_once",
        name="one decision a person",
        what="the database holds one decision of a person for a request",
    ),
    Guard(
        name="repair token",
        what="the same repair again answers what was done then",
        cuts=(
            Cut(
                "orchestrator/engine/repair.py",
                "earlier = None if preview else _earlier(run_id, order)",
                "earlier: RepairReport | None = None",
            ),
        ),
        tests=(
            "tests/engine/test_repair.py::test_the_same_token_does_it_once_and_answers_the_same",
        ),
    ),
    _constraint(
        "orchestrator_repair",
        "orchestrator_repair_once",
        name="unique repair token",
        what="the database holds one repair for a token of a run",
    ),
    Guard(
        name="expected version of a repair",
        what="a repair of a state that the operator has not seen is refused",
        cuts=(Cut("orchestrator/engine/repair.py", "        _check_version(run, order)\n", ""),),
        tests=("tests/engine/test_repair.py::test_a_repair_of_an_older_state_is_refused",),
    ),
)

HISTORY_GUARDS = (
    Guard(
        name="history is append-only",
        what="a trigger refuses UPDATE and DELETE of the history",
        drop="DROP TRIGGER orchestrator_event_append_only ON orchestrator_event",
        tests=("tests/engine/test_recovery.py::test_what_has_happened_cannot_be_changed",),
    ),
    Guard(
        name="history is gapless",
        what="the run's row gives out the sequence in the statement that writes the lines",
        cuts=(Cut(APPLY, "next_seq = r.next_seq + n,", "next_seq = r.next_seq + n + 1,"),),
        tests=(
            "tests/engine/test_flow.py::test_history_numbers_are_gapless_and_each_move_has_its_event",
        ),
    ),
    Guard(
        name="one line a sequence",
        what="the database holds one line of history for a sequence of a run",
        drop="ALTER TABLE orchestrator_event DROP CONSTRAINT orchestrator_event_pkey",
        tests=(f"{SECOND}test_the_database_refuses_a_second_line_of_one_sequence",),
    ),
    _constraint(
        "orchestrator_step",
        "orchestrator_step_once",
        name="one row a step",
        what="the database holds one row for a step, or an item, of a run",
    ),
)
