from __future__ import annotations

import logging
from typing import Any

import pytest

from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient, tool
from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Answer, Failed, Succeeded
from orchestrator.executors.effects import Applied, NotApplied, Unknown, look_up_effect
from orchestrator.executors.tool import ToolExecutor
from tests.executors.builders import STARTED_AT, step_context


@tool("executors_test.describe")
def describe(ctx: ToolContext, order_id: str, amount: int = 1) -> dict[str, Any]:
    ctx.heartbeat()
    return {
        "order_id": order_id,
        "amount": amount,
        "key": ctx.idempotency_key,
        "run": ctx.run_id,
        "attempt": ctx.attempt,
        "tenant": ctx.tenant,
        "actor": ctx.actor,
        "correlation_id": ctx.correlation_id,
        "traceparent": ctx.traceparent,
        "deadline": ctx.deadline.isoformat(),
    }


@tool("executors_test.secret")
def read_secret(ctx: ToolContext, name: str) -> str:
    return ctx.secret(name)


@tool("executors_test.time_left", timeout=5)
def time_left(ctx: ToolContext) -> float:
    return ctx.time_left()


ERRORS: dict[str, Exception] = {
    "transient": Transient("later", 7),
    "not_applied": Transient("refused", not_applied=True),
    "rate_limited": RateLimited("slow down", retry_after=2.5),
    "permanent": Permanent("never"),
    "other": KeyError("order"),
    "nul": ValueError("a\x00b\ud800"),
    "long": ValueError("x" * 100_000),
}


@tool("executors_test.fail")
def fail(how: str) -> None:
    raise ERRORS[how]


ANSWERS: dict[str, Any] = {
    "nul": {"text": "a\x00b"},
    "nul key": {"a\x00": 1},
    "surrogate": ["\ud800"],
    "nan": {"n": float("nan")},
    "infinite": {"n": float("inf")},
    "big": {"n": 2**64},
    "set": {"n": {1}},
    "bytes": b"x",
    "number key": {1: "x"},
    "object": object(),
}
deep: list[Any] = []
for _ in range(70):
    deep = [deep]
ANSWERS["deep"] = deep


@tool("executors_test.answer")
def answer(which: str) -> Any:
    return ANSWERS[which]


@tool("executors_test.keyed", effect="required")
def keyed(ctx: ToolContext, order_id: str) -> dict[str, Any]:
    return {"key": ctx.idempotency_key}


def _found(ctx: ToolContext, order_id: str) -> dict[str, Any] | None:
    if order_id == "unreachable":
        raise ConnectionError("no answer")
    return {"ref": ctx.idempotency_key} if order_id == "applied" else None


@tool("executors_test.reconciled", reconcile=_found)
def reconciled(ctx: ToolContext, order_id: str) -> dict[str, Any]:
    return {"ref": ctx.idempotency_key}


@tool("executors_test.total")
def total(amounts: list[int]) -> int:
    return sum(amounts)


def execute(name, given=None, **context):
    config = {"type": "tool", "tool": f"executors_test.{name}", **context.pop("config", {})}
    return ToolExecutor().execute(step_context(config, input=given, **context))


def test_the_function_gets_its_arguments_and_the_context():
    beats = []

    outcome = execute(
        "describe",
        {"order_id": "A-1"},
        idempotency_key="pay:A-1",
        attempt=2,
        heartbeat=lambda: beats.append(1),
    )

    assert isinstance(outcome, Succeeded)
    assert outcome.output == {
        "order_id": "A-1",
        "amount": 1,
        "key": "pay:A-1",
        "run": "0190-run",
        "attempt": 2,
        "tenant": "acme",
        "actor": "token:shop",
        "correlation_id": "case-7",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "deadline": "2030-01-01T12:00:30+00:00",
    }
    assert beats == [1]
    assert outcome.usage.cost_microusd == 0


def test_a_list_goes_to_a_function_with_one_parameter():
    assert execute("total", [1, 2, 3]) == Succeeded(output=6)


def test_arguments_that_do_not_fit_are_a_schema_error_with_pointers():
    outcome = execute("describe", {"order_id": "A", "amount": "many"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.SCHEMA_ERROR
    assert outcome.error.details is not None
    assert outcome.error.details["problems"][0]["pointer"] == "/amount"
    assert outcome.error.details["not_applied"] is True


def test_an_unknown_tool_is_permanent():
    outcome = execute("nope")

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT
    assert "executors_test.nope" in outcome.error.message


@pytest.mark.parametrize(
    ("how", "error_class", "message", "retry_after", "not_applied"),
    [
        ("transient", ErrorClass.TRANSIENT, "later", 7, False),
        ("not_applied", ErrorClass.TRANSIENT, "refused", None, True),
        ("rate_limited", ErrorClass.RATE_LIMIT, "slow down", 2.5, True),
        ("permanent", ErrorClass.PERMANENT, "never", None, True),
        ("other", ErrorClass.TRANSIENT, "KeyError: 'order'", None, False),
    ],
)
def test_what_a_function_raises_says_what_kind_of_failure_it_is(
    how, error_class, message, retry_after, not_applied
):
    outcome = execute("fail", {"how": how})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is error_class
    assert outcome.error.message == message
    assert outcome.retry_after == retry_after
    assert (outcome.error.details or {}).get("not_applied", False) is not_applied


def test_an_unexpected_exception_leaves_its_traceback_in_the_log_only(caplog):
    with caplog.at_level(logging.WARNING, logger="orchestrator.executors.tool"):
        outcome = execute("fail", {"how": "other"})

    assert isinstance(outcome, Failed)
    assert "Traceback" not in outcome.error.message
    assert caplog.records[0].exc_info is not None
    assert "0190-run" in caplog.text


@pytest.mark.parametrize("how", ["nul", "long"])
def test_an_error_message_can_always_be_stored(how, monkeypatch):
    # pytest-xdist cannot carry a captured log that holds half a surrogate pair.
    monkeypatch.setattr(logging.getLogger("orchestrator.executors.tool"), "disabled", True)

    outcome = execute("fail", {"how": how})

    assert isinstance(outcome, Failed)
    assert "\x00" not in outcome.error.message
    assert len(outcome.error.message.encode()) <= 1100


@pytest.mark.parametrize("which", sorted(ANSWERS))
def test_an_output_that_is_no_json_is_a_schema_error(which):
    outcome = execute("answer", {"which": which})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.SCHEMA_ERROR
    assert "not JSON" in outcome.error.message
    assert outcome.error.details is None, "the call happened: nothing promises the opposite"


def test_the_steps_output_schema_is_checked():
    schema = {"type": "object", "properties": {"amount": {"maximum": 5}}}

    fits = execute("describe", {"order_id": "A"}, config={"output_schema": schema})
    breaks = execute("describe", {"order_id": "A", "amount": 6}, config={"output_schema": schema})

    assert isinstance(fits, Succeeded)
    assert isinstance(breaks, Failed)
    assert breaks.error.error_class is ErrorClass.SCHEMA_ERROR
    assert "/amount" in breaks.error.message


def test_an_output_schema_with_a_remote_reference_fetches_nothing():
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}

    outcome = execute("total", [1], config={"output_schema": schema})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.SCHEMA_ERROR
    assert "leads elsewhere" in outcome.error.message


def test_a_tool_that_needs_a_key_is_not_called_without_one():
    outcome = execute("keyed", {"order_id": "A"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT
    assert execute("keyed", {"order_id": "A"}, idempotency_key="k").output == {"key": "k"}


def test_a_secret_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SECRET_CRM_TOKEN", "s3cret")

    assert execute("secret", {"name": "crm-token"}) == Succeeded(output="s3cret")


def test_a_missing_secret_is_permanent_and_names_the_variable(monkeypatch):
    monkeypatch.delenv("SECRET_CRM_TOKEN", raising=False)

    outcome = execute("secret", {"name": "crm.token"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT
    assert "SECRET_CRM_TOKEN" in outcome.error.message


def test_the_tools_own_time_limit_shortens_the_steps():
    outcome = execute("time_left", {}, timeout_s=3600)

    assert isinstance(outcome, Succeeded)
    assert 4 < outcome.output <= 5


@pytest.mark.parametrize(
    ("order_id", "expected"),
    [
        ("applied", Applied(output={"ref": "pay:1"})),
        ("absent", NotApplied()),
        ("unreachable", Unknown(reason="")),
    ],
)
def test_an_effect_in_doubt_is_looked_up(order_id, expected):
    config = {"type": "tool", "tool": "executors_test.reconciled"}

    found = look_up_effect(
        step_context(config, input={"order_id": order_id}, idempotency_key="pay:1")
    )

    assert type(found) is type(expected)
    if isinstance(expected, Applied):
        assert found == expected
    if isinstance(found, Unknown):
        assert "ConnectionError: no answer" in found.reason


def test_an_effect_of_a_tool_without_reconcile_stays_unknown():
    config = {"type": "tool", "tool": "executors_test.keyed"}

    found = look_up_effect(step_context(config, input={"order_id": "A"}))

    assert isinstance(found, Unknown)


def test_a_tool_takes_no_answer():
    with pytest.raises(TypeError):
        ToolExecutor().resume({}, Answer(kind="signal"), upstream=None)


def test_the_deadline_is_the_steps():
    assert step_context({}).deadline > STARTED_AT
