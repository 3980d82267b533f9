"""The store of chord headers' results: it counts them, and nobody waits for one."""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend


class ChordCounts(RedisBackend):
    """Celery's Redis store without its subscriptions.

    The stock store subscribes to every result whose sender might wait for it, and raises in the
    sender when the broker is away: a start would be refused that has been committed. What a run
    answers stands in the database; no process of the product ever waits for a result.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """A task is being sent: nobody will wait for it."""

    def add_pending_result(
        self,
        result: Any,
        weak: bool = False,  # noqa: FBT001, FBT002 - Celery's signature
        start_drainer: bool = True,  # noqa: FBT001, FBT002
    ) -> Any:
        """The handle of a task that was sent: it is dropped, unasked."""
        del weak, start_drainer
        return result

    def remove_pending_result(self, result: Any) -> Any:
        """The handle is gone; nothing was held for it."""
        return result
