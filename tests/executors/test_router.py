import pytest

from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Failed, Routed
from orchestrator.executors.router import RouterExecutor
from tests.executors.builders import step_context

RULES = [
    {"id": "big", "to": ["a"], "when": "input.amount > 1000"},
    {"id": "eu", "to": ["b"], "when": "input.region == 'eu'"},
    {"id": "rest", "to": ["c"]},
]
SCORES = [
    {"id": "low", "to": ["a"], "at_least": 0.2},
    {"id": "high", "to": ["b"], "at_least": 0.8},
    {"id": "mid", "to": ["c"], "at_least": 0.5},
    {"id": "none", "to": ["d"]},
]
TOPICS = [
    {"id": "billing", "to": ["a"], "description": "money"},
    {"id": "technical", "to": ["b"]},
    {"id": "other", "to": ["c"]},
]


def rules(given, **config):
    config = {"type": "router", "routes": RULES, "default": "rest", **config}
    return RouterExecutor().execute(step_context(config, scope={"input": given}, input=given))


def score(value, **config):
    config = {
        "type": "router",
        "strategy": "score",
        "value": "input.score",
        "routes": SCORES,
        "default": "none",
        **config,
    }
    return RouterExecutor().execute(step_context(config, scope={"input": {"score": value}}))


def llm(question, **config):
    config = {
        "type": "router",
        "strategy": "llm",
        "model": "offline:echo",
        "question": "${{ input.text }}",
        "routes": TOPICS,
        "default": "other",
        **config,
    }
    return RouterExecutor().execute(step_context(config, scope={"input": {"text": question}}))


@pytest.mark.parametrize(
    ("given", "mode", "routes"),
    [
        ({"amount": 2000, "region": "eu"}, "first", ("big",)),
        ({"amount": 2000, "region": "eu"}, "all", ("big", "eu")),
        ({"amount": 1, "region": "eu"}, "first", ("eu",)),
        ({"amount": 1, "region": "us"}, "first", ("rest",)),
        ({"amount": 1, "region": "us"}, "all", ("rest",)),
    ],
)
def test_rules_are_tried_in_order(given, mode, routes):
    outcome = rules(given, mode=mode)

    assert isinstance(outcome, Routed)
    assert outcome.routes == routes


def test_a_decision_records_inputs_choice_rejections_and_reasons():
    outcome = rules({"amount": 2000, "region": "eu"})

    assert isinstance(outcome, Routed)
    assert outcome.why == "big: input.amount > 1000 is true"
    assert outcome.details == {
        "strategy": "rules",
        "mode": "first",
        "inputs": {"input": {"amount": 2000, "region": "eu"}},
        "chosen": [{"id": "big", "reason": "input.amount > 1000 is true"}],
        "rejected": [
            {"id": "eu", "reason": "not looked at: an earlier rule matched"},
            {"id": "rest", "reason": "not looked at: an earlier rule matched"},
        ],
        "defaulted": False,
    }


def test_a_default_says_that_it_is_one():
    outcome = rules({"amount": 1, "region": "us"})

    assert isinstance(outcome, Routed)
    assert outcome.details["defaulted"] is True
    assert "the default" in outcome.why


@pytest.mark.parametrize("when", ["input.amount", "input.nothing > 1", "'yes'"])
def test_a_rule_that_is_not_boolean_or_errs_is_never_read_as_false(when):
    outcome = rules({"amount": 1}, routes=[{"id": "x", "to": ["a"], "when": when}], default="x")

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CONDITION_ERROR


@pytest.mark.parametrize(
    ("value", "mode", "routes"),
    [
        (0.9, "first", ("high",)),
        (0.8, "first", ("high",)),
        (0.79, "first", ("mid",)),
        (1, "all", ("low", "high", "mid")),
        (0.5, "all", ("low", "mid")),
        (0.1, "first", ("none",)),
        (0.1, "all", ("none",)),
    ],
)
def test_a_score_takes_the_highest_threshold_reached(value, mode, routes):
    outcome = score(value, mode=mode)

    assert isinstance(outcome, Routed)
    assert outcome.routes == routes
    assert outcome.details["inputs"] == {"score": value}


@pytest.mark.parametrize("value", ["0.9", True, None])
def test_a_score_that_is_no_number_is_a_condition_error(value):
    outcome = score(value)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CONDITION_ERROR


@pytest.mark.parametrize(
    ("question", "route"),
    [
        ("this is technical, not billing", "technical"),
        ("billing or technical?", "billing"),
        ("something else", "other"),
        ("", "other"),
    ],
)
def test_a_model_picks_a_route_and_an_unknown_answer_is_the_default(question, route):
    outcome = llm(question)

    assert isinstance(outcome, Routed)
    assert outcome.routes == (route,)
    assert outcome.details["inputs"]["question"] == question
    assert outcome.usage.model == "offline:echo"


def test_a_model_that_cannot_answer_fails_the_step():
    outcome = llm("billing", model="nowhere:x")

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.PERMANENT


def test_a_large_input_is_recorded_by_its_beginning():
    outcome = rules({"amount": 5000, "region": "eu", "text": "x" * 5000})

    assert isinstance(outcome, Routed)
    assert len(str(outcome.details["inputs"])) < 1000
