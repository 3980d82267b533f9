"""How many messages wait: what the sweep and a polite lane go by."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from celery import current_app

from orchestrator.tasks.depth import queue_depth
from orchestrator.tasks.steps import run_step


@pytest.fixture
def empty_queue() -> Iterator[str]:
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge("compensation")
        yield "compensation"
        broker.default_channel.queue_purge("compensation")


def test_the_depth_of_a_queue_is_the_number_of_its_messages(empty_queue: str) -> None:
    for _ in range(3):
        run_step.si(str(uuid4()), "some_step").apply_async(queue=empty_queue)

    assert queue_depth(empty_queue) == 3


def test_an_empty_queue_and_one_that_was_never_used_have_no_depth(empty_queue: str) -> None:
    assert queue_depth(empty_queue) == 0
    assert queue_depth("tool.never_used") == 0
