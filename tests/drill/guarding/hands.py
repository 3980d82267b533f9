"""Guards of what a lane holds together (ADR 0041)."""

from __future__ import annotations

from tests.drill.guarding.guard import Cut, Guard

HERE = "tests/engine/test_company.py::"
COMPANY = "orchestrator/models/sql/company.sql"

HAND_GUARDS = (
    Guard(
        name="fence of each in a hand",
        what="what is settled together is settled only with the fence of each one's claim",
        cuts=(
            Cut(
                COMPANY,
                "AND s.state = 'running'\n           AND s.fence = (x ->> 'fence')::bigint;",
                "AND s.state = 'running';",
            ),
        ),
        tests=(f"{HERE}test_a_hand_with_an_older_fence_changes_nothing",),
    ),
    Guard(
        name="all of a hand",
        what="a hand of which one step is no longer held writes nothing",
        cuts=(
            Cut(
                COMPANY,
                "IF n_moved <> jsonb_array_length(p_settled) THEN",
                "IF n_moved > jsonb_array_length(p_settled) THEN",
            ),
        ),
        tests=(f"{HERE}test_a_hand_with_an_older_fence_changes_nothing",),
    ),
    Guard(
        name="company is READY",
        what="what is claimed in company was READY",
        cuts=(Cut(COMPANY, "IF n_moved <> n_known THEN", "IF n_moved > n_known THEN"),),
        tests=(f"{HERE}test_what_is_not_ready_is_not_claimed_in_company",),
    ),
    Guard(
        name="a lost hand blames nobody",
        what="a worker lost with several steps in hand counts against none of them",
        cuts=(
            Cut(
                "orchestrator/engine/recovery.py",
                "details = {CLAIMED_WITH: others} if others else None",
                "details = None if others else None",
            ),
        ),
        tests=(f"{HERE}test_a_worker_killed_in_mid_hand_blames_no_step",),
    ),
    Guard(
        name="suspects alone",
        what="what was tried before is claimed by itself",
        cuts=(
            Cut(
                "orchestrator/engine/settle.py",
                "if change.claim_row is not None and change.claim_row.attempt:",
                "if False:",
            ),
            Cut(
                "orchestrator/engine/settle.py",
                "if ref not in found or found[ref].attempt]",
                "if ref not in found]",
            ),
        ),
        tests=(f"{HERE}test_a_step_that_was_tried_before_is_claimed_alone",),
    ),
    Guard(
        name="stop between bodies",
        what="a paused or ending run begins no other body of a hand",
        cuts=(Cut("orchestrator/engine/hands.py", "if _starts_nothing(work):", "if False:"),),
        tests=(
            f"{HERE}test_a_pause_in_mid_hand_gives_back_what_has_not_begun",
            f"{HERE}test_a_cancellation_in_mid_hand_begins_no_other_body",
        ),
    ),
    Guard(
        name="stuck in one body",
        what="a body that turns out long keeps nothing else from beginning",
        cuts=(
            Cut(
                "orchestrator/engine/hands.py",
                "time.monotonic() - self._begun_at < STUCK_S",
                "time.monotonic() > 0",
            ),
        ),
        tests=(f"{HERE}test_a_body_that_turns_out_long_keeps_nothing_else_from_beginning",),
    ),
)
