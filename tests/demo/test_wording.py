"""The demo's words: titles instead of keys, one line a transition, honest numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from config.demo.screen import wrapped
from config.demo.wording import Happened, Story, length, money, shortened, table

TITLES = {"draft": "Draft the reply", "pages": ""}


def told(*events: tuple[str, str, float, dict[str, Any]]) -> list[str]:
    story = Story(run="Customer support", titles=TITLES)
    lines = [
        story.tell(Happened(type=kind, step=step, after=timedelta(seconds=at), payload=payload))
        for kind, step, at, payload in events
    ]
    return [f"{line.who}: {line.what} {line.note}".strip() for line in lines if line is not None]


def test_a_step_is_told_by_its_title_with_the_time_it_took() -> None:
    lines = told(
        ("run.started", "", 0, {}),
        ("step.ready", "draft", 0.1, {}),
        ("step.started", "draft", 0.2, {"attempt": 1}),
        ("step.completed", "draft", 2.7, {}),
        ("run.completed", "", 2.8, {"outcome": "succeeded"}),
    )

    assert lines == [
        "Customer support: started",
        "Draft the reply: running",
        "Draft the reply: completed in 2.5 s",
        "Customer support: completed",
    ]


def test_a_long_wait_in_the_queue_is_told() -> None:
    lines = told(("step.ready", "draft", 1, {}), ("step.started", "draft", 4, {}))

    assert lines == ["Draft the reply: running after 3.0 s in the queue"]


def test_a_step_without_title_and_an_item_are_named_in_words() -> None:
    lines = told(("step.started", "pages[3]", 0, {}), ("step.started", "send_mail", 0, {}))

    assert lines == ["Pages [3]: running", "Send mail: running"]


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("step.waiting", {"waiting_for": "person", "why": "approval by role:x"}, "role:x"),
        ("gate.decided", {"decision": "rejected", "by": "user:ann"}, "rejected by user:ann"),
        ("gate.decided", {}, "decided"),
        ("router.decided", {"routes": ["high", "low"]}, "high, low"),
        ("step.failed", {"error": {"class": "permanent", "message": "no such order"}}, "no such"),
        ("step.retry_scheduled", {"delay_s": 2.5, "error": {"message": "busy"}}, "in 2.5 s: busy"),
        ("step.skipped", {"reason": "join_unmet"}, "join_unmet"),
        ("run.completed", {"outcome": "rejected"}, "outcome: rejected"),
        ("run.failed", {"error": {"message": "step draft failed"}}, "step draft failed"),
    ],
)
def test_the_reason_stands_beside_what_happened(
    kind: str, payload: dict[str, Any], words: str
) -> None:
    [line] = told((kind, "draft", 1, payload))

    assert words in line


def test_an_event_that_means_nothing_to_a_reader_has_no_line() -> None:
    assert told(("timer.set", "draft", 0, {}), ("something.new", "draft", 0, {})) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0449, "45 ms"), (12, "12.0 s"), (185, "3 min 05 s"), (-1, "0 ms")],
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert length(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("microusd", "text"),
    [(None, "unknown"), (0, "-"), (426, "USD 0.000426"), (2_000_000, "USD 2.00")],
)
def test_an_unknown_price_is_never_zero(microusd: int | None, text: str) -> None:
    assert money(microusd) == text


def test_long_text_is_cut_to_one_line() -> None:
    assert shortened("a\n b " + "x" * 200, 10) == "a b xxxxx…"


def test_a_table_lines_its_columns_up() -> None:
    assert table(["Step", "Cost"], [["a", "1"], ["bcdef", "22"]], right=(1,)) == [
        "Step   Cost",
        "-----  ----",
        "a         1",
        "bcdef    22",
    ]


def test_wrapping_keeps_paragraphs() -> None:
    assert wrapped("one two\n\nthree", 4) == ["one", "two", "", "thre", "e"]
    assert wrapped("", 4) == [""]
