"""The one list of guards; see ``guard`` for what each says."""

from __future__ import annotations

from tests.drill.guarding.doors import DOOR_GUARDS, HISTORY_GUARDS
from tests.drill.guarding.effects import EFFECT_GUARDS
from tests.drill.guarding.ends import END_GUARDS, SWEEP_GUARDS
from tests.drill.guarding.guard import Cut, Guard
from tests.drill.guarding.hands import HAND_GUARDS
from tests.drill.guarding.models import MODEL_GUARDS
from tests.drill.guarding.owners import OWNER_GUARDS
from tests.drill.guarding.sagas import GATE_GUARDS, SAGA_GUARDS

__all__ = ["GUARDS", "Cut", "Guard"]

GUARDS: tuple[Guard, ...] = (
    *EFFECT_GUARDS,
    *OWNER_GUARDS,
    *HAND_GUARDS,
    *END_GUARDS,
    *SWEEP_GUARDS,
    *DOOR_GUARDS,
    *HISTORY_GUARDS,
    *GATE_GUARDS,
    *SAGA_GUARDS,
    *MODEL_GUARDS,
)
