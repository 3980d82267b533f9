"""What a tool wants to have in the document as it is: a statement, a database's name."""

from __future__ import annotations

from typing import Any

from orchestrator.core.literals import not_literal
from orchestrator.core.step_kinds import AgentStep, ToolStep
from orchestrator.core.validation.kinds import Path
from orchestrator.core.validation.review import Review


def check_literals(review: Review) -> None:
    """Tool steps, compensations, and what agents may call."""
    for key, step in review.steps.items():
        path = ("steps", key)
        if isinstance(step, ToolStep):
            _check(review, (*path, "input"), step.tool, step.input)
        if step.compensate is not None:
            block = step.compensate
            _check(review, (*path, "compensate", "input"), block.tool, block.input)
        if isinstance(step, AgentStep):
            for index, name in enumerate(step.tools):
                _check_offered(review, (*path, "tools", index), name)


def _check(review: Review, path: Path, tool: str, template: Any) -> None:
    facts = review.catalogue.tool(tool)
    if facts is None:
        return
    for name in not_literal(template, facts.literal):
        review.error(
            "not_literal",
            (*path, name) if isinstance(template, dict) else path,
            f"{tool} takes {name} from the document as it is: write it there, and give values by"
            " the other parameters.",
        )


def _check_offered(review: Review, path: Path, tool: str) -> None:
    facts = review.catalogue.tool(tool)
    if facts is not None and facts.literal:
        review.error(
            "not_literal",
            path,
            f"{tool} takes {', '.join(facts.literal)} from the document, so no agent may call it:"
            " call it from a tool of your own with the text fixed.",
        )
