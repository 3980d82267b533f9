"""Every kind of step in one run."""

from __future__ import annotations

from typing import Any

from orchestrator import engine
from orchestrator.models import Run
from tests.engine.carrier import Carrier
from tests.engine.runs import output, registered, say, start
from tests.engine.test_waits import GATE, press

KINDS: dict[str, Any] = {
    "draft": {"type": "agent", "model": "offline:echo", "prompt": "a word for ${{ input.n }}"},
    "sort": {
        "type": "router",
        "needs": ["draft"],
        "strategy": "llm",
        "model": "offline:echo",
        "question": "take the long way",
        "routes": [{"id": "long", "to": ["many"]}, {"id": "short", "to": ["kid"]}],
        "default": "short",
    },
    "many": say("${{ item }}", for_each={"items": "${{ [1, 2, 3] }}"}),
    "kid": {"type": "sub_workflow", "workflow": "kid", "input": {"n": 1}, "needs": ["many"]},
    "pause": {"type": "wait", "signal": "go", "needs": ["kid"]},
    "ask": {**GATE, "needs": ["pause"]},
    "done": say("${{ steps.draft.output.text }}", needs=["ask"], effect={"key": "say:done"}),
}


def test_every_kind_of_step_has_its_turn(carrier: Carrier) -> None:
    small = registered({"k": say("${{ input.n }}")}, name="kid")
    steps = {**KINDS, "kid": {**KINDS["kid"], "needs": ["many", "sort"]}}
    run = Run.objects.get(pk=start(registered(steps, pins={"kid": small.digest}), {"n": 5}))
    carrier.run_all()
    engine.send_signal(run.pk, name="go", signal_id="1", payload={"on": True}, actor="user:x")
    carrier.run_all()
    press(run)
    carrier.run_all()
    assert output(run) == {"done": "a word for 5"}
