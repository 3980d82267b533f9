import json

import pytest

from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.executors.agent import AgentExecutor
from tests.executors.builders import step_context


def execute(config, **context):
    config = {"type": "agent", "model": "offline:echo", **config}
    return AgentExecutor().execute(step_context(config, **context))


def test_the_rendered_prompt_is_what_the_model_gets():
    outcome = execute(
        {"system": "You are short.", "prompt": "Hello ${{ input.name }}!"},
        scope={"input": {"name": "Ada"}},
    )

    assert isinstance(outcome, Succeeded)
    assert outcome.output == {"text": "Hello Ada!"}
    assert outcome.usage.model == "offline:echo"
    assert (outcome.usage.tokens_in, outcome.usage.tokens_out) == (5, 2)
    assert outcome.usage.cost_microusd == 5 * 3 + 2 * 15


def test_a_prompt_that_is_one_expression_reaches_the_model_as_json():
    outcome = execute(
        {"prompt": "${{ input.ticket }}"}, scope={"input": {"ticket": {"id": 1, "x": None}}}
    )

    assert json.loads(outcome.output["text"]) == {"id": 1, "x": None}


def test_without_a_prompt_the_input_is_the_question():
    assert json.loads(execute({}, input={"a": [1]}).output["text"]) == {"a": [1]}


def test_with_an_output_schema_the_output_is_the_object():
    schema = {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["a", "b"]}}}

    assert execute({"prompt": 'It is {"kind": "b"}.', "output_schema": schema}).output == {
        "kind": "b"
    }
    assert execute({"prompt": "no object", "output_schema": schema}).output == {"kind": "a"}


def test_an_answer_that_breaks_the_schema_is_a_schema_error_and_its_cost_counts():
    schema = {
        "type": "object",
        "required": ["code"],
        "properties": {"code": {"type": "string", "pattern": "^X9$"}},
    }

    outcome = execute({"prompt": "what is the code", "output_schema": schema})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.SCHEMA_ERROR
    assert outcome.usage.tokens_in == 3 * 4, "the first answer and two corrections"
    assert outcome.usage.cost_microusd


def test_an_expression_that_fails_is_a_condition_error():
    outcome = execute({"prompt": "Hello ${{ input.nobody }}"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CONDITION_ERROR


@pytest.mark.parametrize("model", ["nowhere:gpt", "unknown", "offline:nothing"])
def test_an_unknown_model_is_permanent(model):
    outcome = execute({"model": model, "prompt": "x"})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT
    assert model in outcome.error.message


def test_a_list_of_tools_is_accepted():
    assert execute({"prompt": "x", "tools": ["http.request"]}).output == {"text": "x"}


def test_the_same_question_always_gets_the_same_answer():
    config = {"prompt": "Say ${{ input.word }}"}

    answers = [execute(config, scope={"input": {"word": "it"}}) for _ in range(3)]

    assert answers[0] == answers[1] == answers[2]
