"""Guards between a model and what it asks for."""

from __future__ import annotations

from tests.drill.guarding.guard import Cut, Guard

POLICY = "orchestrator/executors/agent_policy.py"
JOURNAL = "orchestrator/engine/journal.py"
HOSTILE = "tests/llm/test_hostile_models.py::test_nothing_gets_through"
TOOLS = "tests/llm/test_agent_tools.py::"

MODEL_GUARDS = (
    Guard(
        name="allow-list of an agent",
        what="a model gets no tool that its step does not list",
        cuts=(
            Cut(POLICY, "if use.name not in self.listed:", "if False:"),
            Cut(
                "orchestrator/engine/calls.py",
                'if context.config.get("type") == "agent" and tool not in',
                "if False and tool not in",
            ),
        ),
        tests=(HOSTILE,),
    ),
    Guard(
        name="no consequence after a stranger's words",
        what="once an agent has read what nobody vouched for, it changes nothing outside",
        cuts=(Cut(POLICY, "        if strangers:", "        if False:"),),
        tests=(
            HOSTILE,
            f"{TOOLS}test_words_that_a_tool_brings_in_taint_what_follows",
            f"{TOOLS}test_what_came_beside_a_gate_is_not_vouched_for",
        ),
    ),
    Guard(
        name="fixed arguments",
        what="what only the document may say, no model says",
        cuts=(Cut(POLICY, "    if spec.literal:", "    if False:"),),
        tests=(HOSTILE,),
    ),
    Guard(
        name="a turn is stored before what follows",
        what="an attempt after a crash finds every turn that came to an end",
        cuts=(Cut(JOURNAL, "        outlast(lambda: self._store(turn))\n", ""),),
        tests=(f"{TOOLS}test_a_worker_killed_around_any_turn_doubles_no_call",),
    ),
    Guard(
        name="a turn is stored by its holder alone",
        what="an attempt that lost its step adds no turn and no cost",
        cuts=(
            Cut(
                "orchestrator/models/turn_rows.py",
                " WHERE s.id = %(step)s AND s.fence = %(fence)s AND s.state = 'running'\n"
                "ON CONFLICT",
                " WHERE s.id = %(step)s\nON CONFLICT",
            ),
        ),
        tests=(f"{TOOLS}test_an_attempt_that_lost_its_step_stores_no_turn",),
    ),
)
