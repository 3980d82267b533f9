"""Looking at breakers that are not closed: the sweep's part."""

from __future__ import annotations

from orchestrator.conf import engine_settings
from orchestrator.core import breaker as machine
from orchestrator.core.gates import gate_key
from orchestrator.crash import Unit
from orchestrator.engine.breakers import write_move
from orchestrator.engine.gates import cache
from orchestrator.engine.sweeping import each
from orchestrator.models import breaker_rows, gate_rows


def look_at_breakers() -> int:
    """Half-open the breakers that are due; close those that nobody needs to try; how many."""
    return each(breaker_rows.to_look_at(), _look)


def _look(service: str) -> bool:
    key = gate_key("service", service)
    with Unit("breaker_look"):
        held = breaker_rows.lock(service)
        idle = not gate_rows.has_line(key)
        after = machine.after_look(held.breaker, engine_settings().breaker, held.now, idle=idle)
        if after == held.breaker:
            return False
        write_move(service, held.breaker, after)
    cache.forget()
    return True
