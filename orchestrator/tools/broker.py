"""``broker.publish``: one message to a broker of the house."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from orchestrator.adapters.broker import DEFAULT_TIMEOUT_S, Broker, Message
from orchestrator.adapters.broker import publish as hand_over
from orchestrator.authoring import Permanent, ToolContext, tool

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Queue = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$")]
Headers = Annotated[dict[str, str], Field(max_length=50)]


@tool("broker.publish", effect="required")
def publish(
    ctx: ToolContext, broker: Name, queue: Queue, message: Any, headers: Headers | None = None
) -> dict[str, Any]:
    """Publish ``message`` as JSON to a queue and answer ``{message_id, queue, external_ref}``.

    ``broker`` names the secret ``broker <name>`` that holds its address. The message carries the
    effect key in the header ``idempotency-key``, and as its id together with the tenant, so that
    whoever consumes it knows a double.
    """
    key = ctx.idempotency_key
    if key is None:
        raise Permanent("broker.publish needs an effect key: give the step effect: {key: …}")
    message_id = f"{ctx.tenant}/{key}"
    ours = {"idempotency-key": key, "run-id": ctx.run_id, "traceparent": ctx.traceparent}
    hand_over(
        Broker(name=broker, url=ctx.secret(f"broker {broker}")),
        Message(
            queue=queue,
            body=message,
            message_id=message_id,
            headers={**(headers or {}), **ours},
            correlation_id=ctx.correlation_id,
            timeout_s=min(DEFAULT_TIMEOUT_S, ctx.time_left()),
        ),
    )
    return {"message_id": message_id, "queue": queue, "external_ref": message_id}
