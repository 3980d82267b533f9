"""Guards of the gates before services, and of what is undone in which order."""

from __future__ import annotations

from tests.drill.guarding.guard import APPLY, Cut, Guard

HOLDS = "tests/engine/test_holds.py::"
UNDOING = "tests/engine/test_undoing.py::"
ITEMS = "tests/engine/test_undoing_items.py::"
CHILDREN = "tests/engine/test_undoing_open_children.py::"

GATE_GUARDS = (
    Guard(
        name="gate looked at by the take",
        what="a message takes nothing by itself that stands before a gate",
        cuts=(Cut(APPLY, "IF guarded AND EXISTS (", "IF false AND EXISTS ("),),
        tests=(
            f"{HOLDS}test_what_is_held_waits_with_the_reason_and_goes_on_when_released",
            f"{HOLDS}test_a_quota_bounds_what_is_at_work_and_all_of_it_ends",
            f"{HOLDS}test_a_held_boot_starts_nothing_until_somebody_releases_it",
        ),
    ),
    Guard(
        name="gate looked at by planning",
        what="a claim that planning decides on parks what stands before a shut or full gate",
        cuts=(
            Cut(
                "orchestrator/engine/claiming.py",
                "if before and not _passes(run, row, before):",
                "if before and False:",
            ),
        ),
        tests=(
            "tests/engine/test_breakers.py"
            "::test_five_failures_open_the_breaker_and_the_sixth_run_burns_no_attempt",
            f"{HOLDS}test_a_quota_bounds_what_is_at_work_and_all_of_it_ends",
        ),
    ),
    Guard(
        name="row lock of a quota",
        what="who counts what is at work behind a gate waits for who has counted before",
        cuts=(
            Cut(
                "orchestrator/models/gate_rows.py",
                'suffix = " FOR UPDATE" if lock else ""',
                'suffix = ""',
            ),
        ),
        tests=(f"{HOLDS}test_who_counts_at_a_gate_waits_for_who_has_counted_before",),
    ),
)

SAGA_GUARDS = (
    Guard(
        name="order of undoing",
        what="a step is undone when all that was done behind it has been",
        cuts=(
            Cut(
                "orchestrator/core/saga.py",
                "and not (behind(workflow, step.undoes) & (open_ones - {step.undoes}))",
                "and open_ones",
            ),
        ),
        tests=(
            f"{UNDOING}test_what_was_done_is_undone_in_reverse",
            "tests/engine/test_undoing_children.py::test_grandchildren_are_undone_first",
        ),
    ),
    Guard(
        name="bodies end before the undoing",
        what="nothing is undone while a step of the document is at work, or in doubt",
        cuts=(
            Cut(
                "orchestrator/core/standing.py",
                "if undone and not _is_open(turn):",
                "if undone:",
            ),
        ),
        tests=(
            f"{UNDOING}test_an_unknown_effect_is_settled_before_anything_is_undone",
            f"{UNDOING}test_a_run_fails_after_a_step_was_undone_and_bodies_finish_first",
            f"{ITEMS}test_an_item_in_doubt_is_settled_before_its_run_is_undone",
        ),
    ),
    Guard(
        name="what did not complete is undone too",
        what="items and children of a step that did not complete have their place in the saga",
        cuts=(
            Cut(
                "orchestrator/core/saga.py",
                "snapshot.code(position) in _DONE or position in snapshot.acted",
                "snapshot.code(position) in _DONE",
            ),
        ),
        tests=(
            f"{ITEMS}test_the_completed_items_of_a_failed_for_each_are_undone_each_with_its_own_key",
            f"{ITEMS}test_the_items_of_a_cancelled_for_each_are_undone",
            f"{CHILDREN}test_a_failed_child_that_could_not_undo_itself_wholly_makes_its_parent"
            "_partial",
            f"{CHILDREN}test_a_cancelled_parent_waits_until_its_child_has_undone_itself",
        ),
    ),
    Guard(
        name="a parent waits for its children's sagas",
        what="what came before a child is undone once no child of the step is under way",
        cuts=(
            Cut(
                "orchestrator/engine/undoing.py",
                "if any(child.moves for child in found):",
                "if found is None:",
            ),
        ),
        tests=(
            f"{CHILDREN}test_a_cancelled_parent_waits_until_its_child_has_undone_itself",
            f"{CHILDREN}test_children_of_a_for_each_that_are_under_way_are_waited_for",
        ),
    ),
    Guard(
        name="undone once",
        what="when a step is undone again, the items that have been undone are left out",
        cuts=(
            Cut(
                "orchestrator/models/loops.py",
                " AND scope <> '' AND state = 'completed' ORDER BY index",
                " AND scope <> '' AND state <> 'failed' ORDER BY index",
            ),
        ),
        tests=(
            f"{ITEMS}test_an_item_that_cannot_be_undone_keeps_no_other_from_it_and_makes_it_partial",
        ),
    ),
)
