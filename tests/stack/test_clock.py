"""The clock that tests turn."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tests.conftest import TurnTime


def engine_time():
    with connection.cursor() as cursor:
        cursor.execute("SELECT orchestrator_now()")
        return cursor.fetchone()[0]


@pytest.mark.django_db
def test_the_engine_sees_turned_time(turn_time: TurnTime) -> None:
    turn_time(3600)
    turn_time(3600)

    ahead = engine_time() - timezone.now()
    assert timedelta(hours=1, minutes=59) < ahead <= timedelta(hours=2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", [1, 2])
def test_the_clock_is_right_again_in_the_next_test(turn_time: TurnTime, round_: int) -> None:
    assert engine_time() <= timezone.now()
    turn_time(86_400)
