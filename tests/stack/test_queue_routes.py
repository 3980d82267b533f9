"""Rules that split queues: read from the environment, obeyed by work and by workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from config.env import QUEUE_TYPES, BadEnvironmentError, environment
from config.stack.parts import WORKER_GROUPS, all_parts
from orchestrator import engine
from tests.engine.runs import registered, say

RULES = [
    {"tool": "probe.*", "to": ".probe"},
    {"model": "opus", "to": "agent.opus"},
    {"tenant": "eu_*", "to": "@eu"},
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def given(rules: Any) -> Any:
        text = rules if isinstance(rules, str) else json.dumps(rules)
        monkeypatch.setenv("ORCHESTRATOR_QUEUE_ROUTES", text)
        environment.cache_clear()
        return environment()

    yield given
    monkeypatch.undo()
    environment.cache_clear()


def test_every_queue_of_the_rules_has_a_worker(read: Any) -> None:
    env = read(RULES)

    extra = set(env.queues) - set(QUEUE_TYPES)
    assert extra == {
        *("tool.probe", "compensation.probe", "agent.opus"),
        *(f"{kind}@eu" for kind in QUEUE_TYPES),
    }
    served = {kind for group in WORKER_GROUPS for kind in group.types}
    assert {queue.split("@")[0].split(".")[0] for queue in extra} <= served
    assert all_parts(env, "secret")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([{"tool": "x"}], "lacks to"),
        ([{"tool": "x", "to": ".x", "colour": "red"}], "does not know colour"),
        ([{"tool": "x", "to": "agent.x"}], "no step type goes to agent.x"),
        ([{"to": "planet.x"}], "no step type goes to planet.x"),
    ],
)
def test_a_rule_that_makes_no_sense_is_named_at_the_start(
    read: Any, rules: Any, words: str
) -> None:
    with pytest.raises(BadEnvironmentError, match=words):
        read(rules)


@pytest.mark.django_db
def test_work_goes_to_the_queue_that_the_rules_name_and_the_document_has_the_last_word(
    settings: Any,
) -> None:
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "QUEUE_ROUTES": RULES}
    undo = {"tool": "probe.say", "input": {"value": 1}}
    blueprint = registered(
        {
            "a": say(1, compensate=undo),
            "b": say(1, queue="tool"),
            "c": {"type": "tool", "tool": "mail.send", "input": {}},
            "d": {"type": "agent", "model": "opus", "prompt": "x"},
        }
    )
    engine.compiled.cache_clear()
    plan = engine.compiled(blueprint.pk)
    engine.compiled.cache_clear()

    assert [plan.step(key).queue for key in ("a", "b", "c", "d", "undo:a")] == [
        *("tool.probe", "tool", "tool", "agent.opus"),
        "compensation.probe",
    ]
