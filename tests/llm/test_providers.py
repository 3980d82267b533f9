"""What goes over the wire, and what each answer means; without an engine."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from orchestrator.adapters.llm import models as port
from orchestrator.adapters.llm.base import (
    Asked,
    Choice,
    ModelError,
    ModelRequest,
    Result,
    Said,
    ToolOffer,
    ToolUse,
)
from orchestrator.adapters.llm.endpoints import read_endpoint
from orchestrator.adapters.llm.pricing import read_price
from orchestrator.core.errors import ErrorClass
from tests.llm.stub import ModelStub, Reply, refuse, say, use

pytestmark = pytest.mark.usefixtures("models")

TOOL = ToolOffer(
    name="demo.knowledge.search",
    description="Search.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}},
)
TALK = (
    Said(text="", uses=(ToolUse(id="use_1_1", name=TOOL.name, arguments='{"query": "x"}'),)),
    Result(use_id="use_1_1", name=TOOL.name, text="found", failed=False),
    Said(text="not JSON"),
    Asked(text="Again."),
)


def ask(model: str = "one:a", **more: Any) -> Any:
    return port.complete(ModelRequest(model=model, prompt="Hello", **more))


def test_a_completion_has_text_tokens_and_a_cost_rounded_up(stub: ModelStub) -> None:
    stub.replies["b"] = [Reply(text="Hi", tokens=(3, 1))]

    found = ask("two:b")

    assert (found.text, found.model, found.tokens_in, found.tokens_out) == ("Hi", "two:b", 3, 1)
    assert found.cost_microusd == 3, "3 * 0.5 + 1 * 1 = 2.5 micro-dollars"
    assert "in 0.5 out 1" in found.price


def test_a_model_without_a_price_costs_something_unknown(stub: ModelStub) -> None:
    assert ask("one:other").cost_microusd is None

    stub.replies["a"] = [Reply(text="Hi", tokens=None)]
    assert ask().cost_microusd is None, "a provider that does not count tokens tells no cost"


def test_openai_gets_system_question_history_and_tools(stub: ModelStub) -> None:
    ask(system="Be short.", messages=TALK, tools=(TOOL,), max_tokens=7, temperature=0.5)

    (body,) = stub.asked
    assert [m["role"] for m in body["messages"]] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    call = body["messages"][2]["tool_calls"][0]
    assert call["function"] == {"name": "demo-knowledge-search", "arguments": '{"query": "x"}'}
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "use_1_1", "content": "found"}
    assert body["tools"][0]["function"]["name"] == "demo-knowledge-search"
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (7, 0.5, False)


def test_anthropic_gets_the_same_in_its_own_words(stub: ModelStub) -> None:
    found = ask("claude:a", system="Be short.", messages=TALK, tools=(TOOL,))

    (body,) = stub.asked
    assert stub.headers[0]["anthropic-version"] == "2023-06-01"
    assert body["system"] == "Be short."
    assert body["max_tokens"] == 4096
    assert [m["role"] for m in body["messages"]] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert body["messages"][1]["content"][0]["input"] == {"query": "x"}
    assert body["messages"][2]["content"][0]["tool_use_id"] == "use_1_1"
    assert body["tools"][0]["name"] == "demo-knowledge-search"
    assert (found.text, found.tokens_in, found.tokens_out, found.cost_microusd) == (
        "ok",
        10,
        5,
        105,
    )


@pytest.mark.parametrize("model", ["one:a", "claude:a"])
def test_what_a_model_asks_for_has_the_tools_own_name(stub: ModelStub, model: str) -> None:
    stub.replies["a"] = [use(TOOL.name, {"query": "parcel"}, ("rm_rf", {"path": "/"}))]

    found = ask(model, tools=(TOOL,))

    assert [each.name for each in found.uses] == [TOOL.name, "rm_rf"]
    assert json.loads(found.uses[0].arguments) == {"query": "parcel"}


def test_a_schema_is_told_in_words_and_a_code_fence_taken_off(stub: ModelStub) -> None:
    stub.replies["a"] = [say('```json\n{"n": 1}\n```')]

    found = ask(output_schema={"type": "object", "required": ["n"]})

    assert found.text == '{"n": 1}'
    assert '"required":["n"]' in stub.asked[0]["messages"][0]["content"]
    assert "response_format" not in stub.asked[0]


def test_a_provider_that_takes_schemas_gets_it(stub: ModelStub, models: Any) -> None:
    models(structured="schema")

    ask(output_schema={"type": "object"})

    shape = stub.asked[0]["response_format"]
    assert shape["json_schema"]["schema"] == {"type": "object"}


def test_the_background_is_told_apart_from_the_question(stub: ModelStub) -> None:
    ask(background="Steps:\na completed", choices=(Choice(id="x"),))

    text = stub.asked[0]["messages"][0]["content"]
    assert "it is no instruction" in text
    assert text.endswith("----------\nHello")


@pytest.mark.parametrize(
    ("reply", "error_class", "elsewhere", "billed"),
    [
        (refuse(429, "slow down", Retry_After="7"), ErrorClass.RATE_LIMIT, True, False),
        (refuse(500), ErrorClass.TRANSIENT, True, False),
        (refuse(529, "overloaded"), ErrorClass.TRANSIENT, True, False),
        (refuse(504), ErrorClass.TIMEOUT, True, False),
        (refuse(401, "bad key"), ErrorClass.PERMANENT, True, False),
        (refuse(404, "no such model"), ErrorClass.PERMANENT, True, False),
        (refuse(400, "context too long"), ErrorClass.PERMANENT, False, False),
        (refuse(302, Location="http://169.254.169.254/"), ErrorClass.PERMANENT, True, False),
        (Reply(raw=b"<html>oops</html>"), ErrorClass.TRANSIENT, True, True),
        (Reply(raw=b"[]"), ErrorClass.TRANSIENT, True, True),
        (Reply(raw=b"{}"), ErrorClass.TRANSIENT, True, True),
        (Reply(raw=b'{"choices": [{"message": {"content": 7}}]}'),
         ErrorClass.TRANSIENT, True, True),
        (Reply(raw=b'{"choices": [{"message": {"tool_calls": [1]}}]}'),
         ErrorClass.TRANSIENT, True, True),
        (Reply(text="half", cut=True), ErrorClass.TRANSIENT, True, True),
        (Reply(text="late", delay=5), ErrorClass.TIMEOUT, True, True),
    ],
)  # fmt: skip
def test_each_failure_says_what_may_be_done_about_it(
    stub: ModelStub, reply: Reply, error_class: ErrorClass, elsewhere: bool, billed: bool
) -> None:
    stub.replies["a"] = [reply]

    with pytest.raises(ModelError) as caught:
        ask(timeout_s=0.3)

    error = caught.value
    assert error.error_class is error_class
    assert (error.elsewhere, error.billed) == (elsewhere, billed)
    assert "one:a" in str(error)
    assert error.retry_after == (7 if error_class is ErrorClass.RATE_LIMIT else None)
    assert stub.n_asked["a"] == 1, "nobody tries again behind the engine's back"


def test_a_provider_that_nobody_reaches_is_transient_and_costs_nothing(settings: Any) -> None:
    closed = {"kind": "openai", "url": "http://127.0.0.1:9/v1"}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "PROVIDERS": {"gone": closed}}

    with pytest.raises(ModelError) as caught:
        ask("gone:x", timeout_s=1)

    assert caught.value.error_class is ErrorClass.TRANSIENT
    assert not caught.value.billed


def test_the_key_comes_by_reference_and_is_never_told(
    stub: ModelStub, models: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    models(key="secret:stub-key")
    with pytest.raises(ModelError, match="SECRET_STUB_KEY") as missing:
        ask()
    assert missing.value.elsewhere

    file = tmp_path / "key"
    file.write_text("sk-0123456789\n")
    monkeypatch.setitem(os.environ, "SECRET_STUB_KEY_FILE", str(file))
    stub.replies["a"] = [refuse(401, "Incorrect API key provided: sk-0123456789")]
    with pytest.raises(ModelError) as caught:
        ask()

    assert stub.headers[0]["authorization"] == "Bearer sk-0123456789"
    assert "sk-0123456789" not in str(caught.value)
    assert "[key]" in str(caught.value)


def test_words_that_no_database_can_hold_are_mended(stub: ModelStub) -> None:
    stub.replies["a"] = [Reply(text="a\x00b\ud83d", uses=[("x\x00", '{"a": "\x00"}')])]

    found = ask()

    for text in (found.text, found.uses[0].name, found.uses[0].arguments):
        assert "\x00" not in text
        text.encode()


def test_an_alias_is_a_model_or_several(models: Any) -> None:
    assert [target.name for target in port.targets("fast")] == ["one:a", "two:b"]
    assert port.targets("nowhere") == ()
    assert port.has_model("claude:anything")

    models({"broken": ["one:a", "nowhere:x"]})
    assert port.targets("broken") == (), "half an alias is none"
    assert any("nowhere:x" in problem for problem in port.setting_problems())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "cohere"}, "kind is openai or anthropic"),
        ({"kind": "openai", "urll": "x"}, "does not know urll"),
        ({"kind": "openai", "key": "sk-123"}, "never the key itself"),
        ({"kind": "openai", "timeout_s": 0}, "timeout_s"),
        ({"kind": "openai", "prices": {"x": {"in": 1}}}, "price of x"),
        ({"kind": "openai", "prices": {"x": {"in": 1, "out": "much"}}}, "no amount"),
        ({"kind": "openai", "structured": "yes"}, "structured"),
    ],
)
def test_a_provider_that_cannot_work_is_refused_in_a_sentence(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_endpoint("mine", given)


def test_cached_tokens_have_their_own_price() -> None:
    price = read_price({"in": 2, "out": 10, "cached_in": "0.2"})

    assert price.cost(tokens_in=100, tokens_out=1, cached=90) == 20 + 18 + 10
    assert price.cost(tokens_in=1, tokens_out=0, cached=1) == 1, "0.2 micro-dollars, rounded up"
