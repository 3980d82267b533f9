"""Step contexts by intent: a real renderer over a given scope, everything else with defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.core.expressions import compile_expression, compile_template
from orchestrator.executors.base import StepContext

STARTED_AT = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def step_context(
    config: Mapping[str, Any],
    *,
    input: Any = None,  # noqa: A002 - the word of the contract
    scope: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    attempt: int = 1,
    timeout_s: float = 30,
    heartbeat: Callable[[], None] = lambda: None,
    tenant: str = "acme",
    workflow: str = "order_payment",
    step_key: str = "charge",
) -> StepContext:
    names = {"input": {}, "steps": {}, **(scope or {})}
    return StepContext(
        run_id="0190-run",
        tenant=tenant,
        workflow=workflow,
        version=3,
        actor="token:shop",
        correlation_id="case-7",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        step_key=step_key,
        item_scope="",
        attempt=attempt,
        fence=1,
        config=config,
        input=input,
        scope=names,
        render=_renderer(names),
        idempotency_key=idempotency_key,
        deadline=STARTED_AT + timedelta(seconds=timeout_s),
        started_at=STARTED_AT,
        heartbeat=heartbeat,
    )


def _renderer(names: Mapping[str, Any]) -> Callable[..., Any]:
    def render(template: Any, *, bare: bool = False) -> Any:
        if bare:
            return compile_expression(template).evaluate(names)
        return compile_template(template).render(names)

    return render
