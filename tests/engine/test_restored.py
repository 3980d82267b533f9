"""After a restore from a backup: what the database does not know may have been done since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine import ledger
from tests.engine.carrier import Carrier
from tests.engine.ledger import ASKABLE, KEYED, KEYLESS, UNSURE, pay
from tests.engine.runs import output, ran, state, step


@pytest.fixture(autouse=True)
def _restored(settings: Any) -> Iterator[None]:
    settings.ORCHESTRATOR = settings.ORCHESTRATOR | {"AFTER_RESTORE": True}
    ledger.forget()
    yield
    ledger.forget()


@pytest.mark.parametrize("kind", [KEYED, ASKABLE])
def test_an_effect_that_was_done_after_the_backup_is_not_done_again(
    carrier: Carrier, kind: str
) -> None:
    ledger.done["k"] += 1

    run = ran(carrier, {"a": pay(kind, "k")})

    assert state(run.pk) == "completed"
    assert ledger.done["k"] == 1
    assert output(run.pk)["a"] == {"external_ref": "R:k"}


@pytest.mark.parametrize("kind", [KEYLESS, UNSURE])
def test_a_person_is_asked_where_nobody_can_tell(carrier: Carrier, kind: str) -> None:
    run = ran(carrier, {"a": pay(kind, "k")})

    assert (state(run.pk), step(run.pk, "a").waiting_for) == ("waiting", "review")
    assert ledger.sent["k"] == 0


def test_an_effect_that_was_not_done_is_done_once(carrier: Carrier) -> None:
    run = ran(carrier, {"a": pay(ASKABLE, "k")})

    assert state(run.pk) == "completed"
    assert ledger.done["k"] == 1
