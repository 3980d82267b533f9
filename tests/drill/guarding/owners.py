"""Guards of ownership: fence, version, place, lease."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drill.guarding.guard import ADVANCE, APPLY, WAKE, Cut, Guard

HERE = "tests/engine/test_guards.py::"
EFFECT = "tests/engine/test_effect_guards.py::"
PLAIN = "tests/engine/test_advance.py::"
WAKES = "tests/engine/test_wake.py::"


_PLAIN_CUTS = {
    "fence": (
        "settles a step only with the fence of its claim",
        "with_an_older_fence",
        ("AND state = 'running' AND fence = p_fence;", "AND state = 'running';"),
        ("AND id = p_step AND fence = p_fence;", "AND id = p_step;"),
        ("AND fence = p_fence AND run_id", "AND run_id"),
    ),
    "state": (
        "settles a step only while it runs",
        "of_a_step_that_does_not_run",
        ("AND run_id = p_run AND state = 'running' AND fence", "AND run_id = p_run AND fence"),
        ("WHERE run_id = p_run AND state = 'running' AND id", "WHERE run_id = p_run AND id"),
        ("AND run_id = p_run AND state = 'running';", "AND run_id = p_run;"),
    ),
    "version": (
        "writes only over the version that its decision was made from",
        "from_an_older_version_of_the_run",
        ("AND version = p_version AND state", "AND state"),
        ("WHERE version = p_version AND state", "WHERE state"),
        ("AND state = 'running' AND version = p_version", "AND state = 'running'"),
    ),
    "running": (
        "carries on no run that is paused, ending or over",
        "of_a_run_that_does_not_run",
        ("AND version = p_version AND state = 'running'\n", "AND version = p_version\n"),
        ("AND state = 'running' AND id = p_run\n", "AND id = p_run\n"),
        ("AND state = 'running' AND version", "AND version"),
    ),
}


def _plain_guards() -> Iterator[Guard]:
    """The guards of the lean statements, each taken away by itself."""
    for name, (what, test, *texts) in _PLAIN_CUTS.items():
        for kind, (old, new) in zip(("advance", "pass_on", "finish"), texts, strict=True):
            yield Guard(
                name=f"{name} of a lean {kind}",
                what=f"the lean statement ({kind}) {what}",
                cuts=(Cut(ADVANCE, old, new),),
                tests=(f"{PLAIN}test_a_lean_write_{test}_changes_nothing[{kind}]",),
            )


OWNER_GUARDS = (
    Guard(
        name="fence",
        what="a settle is written only with the fence of the claim it belongs to",
        cuts=(
            Cut(
                APPLY,
                "AND s.state = m ->> 'from'\n      AND s.fence = (m ->> 'fence')::bigint;",
                "AND s.state = m ->> 'from';",
            ),
        ),
        tests=(
            f"{HERE}test_a_write_with_an_older_fence_changes_nothing",
            "tests/engine/test_recovery.py"
            "::test_a_late_result_while_the_other_worker_still_works_changes_nothing",
        ),
    ),
    *_plain_guards(),
    Guard(
        name="version of a wake",
        what="a wait ends plainly only over the version that its end was decided from",
        cuts=(Cut(WAKE, "AND version = p_version AND state", "AND state"),),
        tests=(f"{WAKES}test_a_wake_that_is_out_of_date_changes_nothing",),
    ),
    Guard(
        name="run of a wake",
        what="a wait ends plainly in no run that is paused, ending or over",
        cuts=(
            Cut(
                WAKE,
                "AND version = p_version AND state IN ('waiting', 'running')",
                "AND version = p_version",
            ),
        ),
        tests=(f"{WAKES}test_a_paused_run_is_not_woken",),
    ),
    Guard(
        name="fence from the clock",
        what="a claim that a crash made forgotten is never given out again",
        cuts=(Cut(APPLY, "greatest(s.fence + 1, (extract", "least(s.fence + 1, (extract"),),
        tests=(
            "tests/engine/test_taking.py"
            "::test_a_claim_that_a_crash_of_the_server_forgot_is_not_given_out_again",
        ),
    ),
    Guard(
        name="fence grows",
        what="each claim has a fence of its own",
        cuts=(
            Cut(
                APPLY,
                "fence = s.fence + 1, attempt = s.attempt + 1, worker = p_worker,\n",
                "fence = s.fence, attempt = s.attempt + 1, worker = p_worker,\n",
            ),
        ),
        tests=(
            f"{EFFECT}test_an_effect_of_a_dead_worker_is_sent_again_with_its_key_where_that_is"
            "_harmless",
        ),
    ),
    Guard(
        name="fence of a renewal",
        what="a lease is renewed by whoever holds its fence",
        cuts=(
            Cut(
                "orchestrator/models/step_moves.py",
                "ON h.id = x.id AND h.fence = x.fence WHERE h.state = 'running'",
                "ON h.id = x.id WHERE h.state = 'running'",
            ),
        ),
        tests=(f"{HERE}test_who_lost_its_lease_renews_nothing",),
    ),
    Guard(
        name="stale process",
        what="a process that stood still past its lease begins no body",
        cuts=(
            Cut(
                "orchestrator/engine/steps.py",
                "if work.is_stale(engine_settings().lease):",
                "if False:",
            ),
        ),
        tests=(f"{HERE}test_a_process_that_stood_still_past_its_lease_begins_no_body",),
    ),
    Guard(
        name="lease looked at before an effect",
        what="a process that stood still after it began calls nobody outside",
        cuts=(
            Cut(
                "orchestrator/engine/work.py",
                "and not keeper.is_ours(work.row.id)",
                "and False",
            ),
        ),
        tests=(
            "tests/engine/test_effect_guards.py"
            "::test_who_stood_still_past_its_lease_after_it_began_calls_nobody",
        ),
    ),
    Guard(
        name="version of the run",
        what="a decision is written only over the version of the run that it was made from",
        cuts=(Cut(APPLY, "WHERE r.id = p_run AND r.version = p_version", "WHERE r.id = p_run"),),
        tests=(
            f"{HERE}test_a_write_of_an_older_version_of_the_run_changes_nothing",
            "tests/engine/test_control.py::test_a_body_finishes_though_its_run_is_paused",
        ),
    ),
    Guard(
        name="READY is claimed once",
        what="a message takes a step only while it is READY",
        cuts=(
            Cut(
                APPLY,
                "IF NOT FOUND OR s.state <> 'ready' OR s.plain_timeout_s IS NULL THEN",
                "IF NOT FOUND OR s.plain_timeout_s IS NULL THEN",
            ),
            Cut(APPLY, "       OR get_byte(c, 9 + s.position) <> 129\n", ""),
        ),
        tests=(
            "tests/engine/test_concurrency.py::test_of_many_workers_that_claim_one_step_one_wins",
        ),
    ),
    Guard(
        name="kept place",
        what="a message takes a step by itself only where its place was kept (the queued bit)",
        cuts=(
            Cut(
                APPLY,
                "       OR get_byte(c, 9 + s.position) <> 129\n"
                "       OR position('\\x01'::bytea IN substring(c FROM 10 FOR n_steps)) > 0 THEN",
                "    THEN",
            ),
        ),
        tests=(f"{HERE}test_a_message_that_nobody_sent_takes_no_place_beyond_max_parallel",),
    ),
    Guard(
        name="places of a run",
        what="what is on its way holds a place: max_parallel bounds bodies and messages together",
        cuts=(
            Cut(
                "orchestrator/core/admission.py",
                "free = max(workflow.max_parallel - snapshot.running - queued, 0)",
                "free = max(workflow.max_parallel - snapshot.running, 0)",
            ),
        ),
        tests=(f"{HERE}test_what_is_on_its_way_holds_a_place_of_the_run",),
    ),
    Guard(
        name="paused starts nothing",
        what="planning claims nothing of a run that is paused",
        cuts=(
            Cut(
                "orchestrator/core/planning.py",
                "halted = snapshot.paused or snapshot.verdict is not None",
                "halted = snapshot.verdict is not None",
            ),
        ),
        tests=("tests/engine/test_taking.py::test_nothing_is_taken_while_the_run_is_paused",),
    ),
    Guard(
        name="paused starts nothing by itself",
        what="a message takes nothing by itself of a run that is paused or ending",
        cuts=(
            Cut(
                APPLY,
                "IF NOT FOUND OR r.state NOT IN ('pending', 'running') THEN",
                "IF NOT FOUND THEN",
            ),
            Cut(
                APPLY,
                "IF get_byte(c, 0) <> 2 OR length(c) <> 9 + n_steps + n_edges",
                "IF get_byte(c, 0) <> 2",
            ),
        ),
        tests=("tests/engine/test_taking.py::test_nothing_is_taken_while_the_run_is_paused",),
    ),
    Guard(
        name="poison counter",
        what="a step that has lost three workers is quarantined",
        cuts=(
            Cut(
                "orchestrator/core/retry.py",
                "MAX_WORKER_LOSSES = 3\n",
                "MAX_WORKER_LOSSES = 10**6\n",
            ),
        ),
        tests=(
            "tests/engine/test_recovery.py::test_a_step_that_lost_three_workers_is_quarantined",
        ),
    ),
    Guard(
        name="poison write",
        what="what the database refuses because of a value becomes the step's failure",
        cuts=(
            Cut(
                "orchestrator/engine/unwritable.py",
                '_OF_VALUES = ("22", "23", "54")',
                "_OF_VALUES: tuple[str, ...] = ()",
            ),
        ),
        tests=(
            "tests/engine/test_unwritable.py"
            "::test_an_answer_that_cannot_be_written_fails_its_step_at_once",
            "tests/engine/test_unwritable.py"
            "::test_a_childs_end_that_cannot_be_written_fails_its_parents_step",
            "tests/engine/test_unwritable.py"
            "::test_a_step_that_cannot_even_be_claimed_halts_its_run",
        ),
    ),
    Guard(
        name="late result of a cancelled step",
        what="cancelling a running item or step takes its fence",
        cuts=(
            Cut(
                "orchestrator/engine/steps.py",
                "if run is None or run.ended or not run.snapshot.runs(work.ref.position, "
                "work.ref.item):",
                "if run is None:",
            ),
        ),
        tests=(f"{HERE}test_a_late_result_of_a_cancelled_item_changes_nothing",),
    ),
)
