"""``python -m tests.golden.record``: histories of this version, from real runs of the real engine.

Runs the tests named below over the real database and stores what their runs wrote. A file that is
there is never written again: it is what this version decided, for ever. New ones may be added, and
a version that decides otherwise gets a folder of its own (see ``test_golden.py``).
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from tests.golden import store

VERSION = "v0.1"

# By file of tests/engine, parts of names; test_golden.py says which lines must be among them.
CHOSEN: dict[str, tuple[str, ...]] = {
    "test_step_kinds": ("every_kind_of_step",),
    "test_flow": (
        "conditions_on_edges",
        "rules_choose",
        "scores_choose",
        "not_chosen",
        "cancels_the_late",
        "at_least_two",
        "chain_of_fallbacks",
        "fallback_that_fails",
        "optional_failure",
        "continue_completes",
        "unhandled_failure",
        "condition_that_errs",
        "output_that_cannot",
        "skips_spread",
        "failed_edges",
    ),
    "test_loops": (
        "failed_items",
        "every_item",
        "lost_loop",
        "items_retry",
        "items_may_wait",
        "sees_its_last",
        "exhausted",
        "with_a_delay",
        "condition_that_errs",
        "inside_for_each",
        "empty_list",
    ),
    "test_waits": (
        "back_off",
        "above_the_cap",
        "over_its_time",
        "never_early",
        "ends_its_wait",
        "before_its_waiter",
        "longest_waiting",
        "not_come_in_time",
        "goes_on_when",
        "rejection_does",
        "expires",
        "escalation",
        "may_end_the_run",
        "wall_time",
        "working_time",
        "loses_its_fence",
    ),
    "test_children": (
        "waits_for_its_child",
        "failed_child",
        "cancelled_parent",
        "takes_too_long",
        "call_itself",
        "item_order",
        "late_cancel",
    ),
    "test_control": (
        "starts_nothing",
        "cancelling_ends",
        "would_wait",
        "though_its_run",
        "that_pauses",
        "that_paused",
        "condition_failed",
    ),
    "test_corners": (
        "loop_may_be",
        "give_up",
        "gives_up",
        "failure_beside",
        "paused_parent",
        "still_being_opened",
    ),
    "test_recovery": (
        "taken_over",
        "quarantined",
        "spreads_out",
        "late_result_changes",
    ),
    "test_repair": (
        "goes_on_from",
        "waits_again",
        "fails_again",
        "paused_by",
        "without_naming",
        "finished_items",
        "behind_the_checkpoint",
        "line_of_the_history",
        "cancelled_run",
        "shorter_list",
        "optional_step",
        "was_applied",
        "called_again",
        "before_its_run",
        "settled_without",
    ),
    "test_undoing": (
        "in_reverse",
        "leaves_its_step",
        "own_policy",
        "cancelled_run",
        "irreversible",
    ),
    "test_undoing_items": (
        "that_completed_is_undone",
        "failed_for_each_are_undone_each",
        "items_of_a_cancelled",
        "keeps_no_other",
        "in_doubt_is_settled",
    ),
    "test_undoing_open_children": (
        "waits_until_its_child",
        "could_not_undo_itself",
        "took_too_long_is_waited",
    ),
    "test_breakers": (
        "open_the_breaker_and",
        "heals_probes",
        "items_wait",
        "compensations_wait",
    ),
}


class Recorder:
    """A pytest plugin: what a test's runs wrote, taken before its database is emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.added: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", item.name.removeprefix("test_").lower()).strip("-")
        file = self.folder / f"{name}.json"
        if file.exists():
            return
        # Models cannot be imported before pytest has set Django up.
        runs = importlib.import_module("tests.golden.taking").recorded_runs()
        if runs:
            store.write(file, item.nodeid, runs)
            text = re.sub(r"worker \S+ was lost", "worker w was lost", file.read_text())
            file.write_text(text)
            self.added.append(file.name)


def main() -> int:
    folder = store.FOLDER / VERSION
    folder.mkdir(exist_ok=True)
    recorder = Recorder(folder)
    chosen = [f"(({' or '.join(words)}) and {module})" for module, words in CHOSEN.items()]
    names = " or ".join(chosen)
    files = [f"tests/engine/{module}.py" for module in CHOSEN]
    status = pytest.main(
        [*files, "-q", "-k", f"({names}) and not single", "-p", "no:randomly"], plugins=[recorder]
    )
    print(f"{len(recorder.added)} histories added: {', '.join(recorder.added) or 'none'}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
