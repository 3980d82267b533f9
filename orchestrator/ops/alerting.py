"""From sightings to alerts: new ones are opened, old ones counted, cured ones closed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.models import alert_rows
from orchestrator.ops.sighting import Sighting


def raise_alerts(kind: str, found: Iterable[Sighting]) -> int:
    """Open an alert for each, or count the sighting; how many are new. In the order of keys, so
    that two looks at once never wait for each other in a ring."""
    return sum(
        alert_rows.open_alert(
            kind,
            one.key,
            title=one.title,
            detail=one.detail,
            severity=one.severity,
            tenant=one.tenant,
            run_id=one.run_id,
        )
        for one in sorted(found, key=lambda one: one.key)
    )


def close_cured(kind: str, looked_at: Iterable[str], found: Sequence[Sighting]) -> int:
    """Close the open alerts among ``looked_at`` that were not found again; how many."""
    seen = {one.key for one in found}
    return sum(alert_rows.close_alert(kind, key) for key in sorted(looked_at) if key not in seen)
