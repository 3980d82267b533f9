"""A scripted hostile model gets nothing through: no call outside the policy, nothing unrecorded."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Count

from orchestrator.authoring import ToolContext, tool
from orchestrator.models import Effect, Event, Run, Turn
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import error, ran
from tests.llm.conftest import Models
from tests.llm.hostile import CASES
from tests.llm.stub import ModelStub, Reply, say
from tests.llm.test_agent_tools import AGENT, TOOLS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]
PROMPT = "A customer writes: ${{ input.text }}"
HARM = ("drop", "pay", "look", "fixed")


@tool("agent_test.drop", idempotent=True, trusted=True)
def drop(ctx: ToolContext, **_any: Any) -> str:
    probes.calls["drop"] += 1
    return "dropped"


@tool("agent_test.fixed", idempotent=True, trusted=True, literal=("statement",))
def fixed(ctx: ToolContext, statement: str) -> str:
    probes.calls["fixed"] += 1
    return "executed"


def test_there_are_at_least_a_hundred_cases() -> None:
    assert len(CASES) >= 100
    assert len({name for name, _ in CASES}) == len(CASES)


def agent(**more: Any) -> dict[str, Any]:
    listed = [*TOOLS, "agent_test.fixed"]
    once = {"retry": {"max_retries": 0}}
    return {**AGENT, **once, "prompt": PROMPT, "tools": listed, "max_turns": 2, **more}


def test_nothing_gets_through(carrier: Carrier, stub: ModelStub, models: Models) -> None:
    models({"one": ["one:a"]})
    for name, reply in CASES:
        probes.calls.clear()
        stub.replies["a"] = [reply, say("that was all")]

        run = ran(carrier, {"a": agent()}, {"text": "hello", "secret": "s3cret"})

        run.refresh_from_db()
        assert run.state in ("completed", "failed"), name
        harm = {call: n for call, n in probes.calls.items() if call.startswith(HARM)}
        allowed = {"look A": 1} if name == "tainted 4" else {}
        assert harm == allowed, name
        assert "s3cret" not in str(run.output), name
        assert not reply.uses or _all_on_record(run, reply), name
    assert not Effect.objects.exists()


def _all_on_record(run: Run, reply: Reply) -> bool:
    """Each use that was looked at is a turn, refused or used, and the rest is told as a number."""
    answer = Turn.objects.get(run_id=run.pk, number=1)
    looked_at = Turn.objects.filter(run_id=run.pk, kind="tool").count()
    kinds = Event.objects.filter(run_id=run.pk, type__in=["call.used", "call.refused"])
    told = sum(kinds.values_list("type").annotate(n=Count("*")).values_list("n", flat=True))
    dropped: int = answer.content.get("dropped", 0)
    return looked_at == told == len(reply.uses) - dropped and looked_at > 0


@pytest.mark.parametrize(
    "text",
    [
        '{"category": "billing", "extra": 1}',
        '{"category": "root"}',
        '{"category": ["billing"]}',
        '["billing"]',
        '{"category": NaN}',
        '{"category": "billing"} and then some',
        "[" * 5000,
        "",
    ],
)
def test_an_answer_outside_the_schema_changes_no_state(
    carrier: Carrier, stub: ModelStub, text: str
) -> None:
    schema = {
        "type": "object",
        "required": ["category"],
        "additionalProperties": False,
        "properties": {"category": {"enum": ["billing", "other"]}},
    }
    stub.replies["a"] = [Reply(text=text)]

    run = ran(carrier, {"a": agent(output_schema=schema)}, {"text": "x"})

    assert error(run)["class"] == "schema_error"
    assert run.output is None


def test_a_template_in_an_answer_is_data(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies["a"] = [say("${{ input.secret }} and ${{ run.id }}")]
    echo = {
        "type": "tool",
        "tool": "probe.say",
        "needs": ["a"],
        "input": {"value": "${{ steps.a.output.text }}"},
    }

    run = ran(carrier, {"a": agent(), "b": echo}, {"text": "x", "secret": "s3cret"})

    run.refresh_from_db()
    assert run.output == {"b": "${{ input.secret }} and ${{ run.id }}"}
