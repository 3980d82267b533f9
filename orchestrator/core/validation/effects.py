"""Effects, money, what cannot be undone, and budgets."""

from __future__ import annotations

from orchestrator.core.durations import format_money
from orchestrator.core.policies import Compensate, Effect
from orchestrator.core.step_kinds import AnyStep, HumanGateStep, ToolStep
from orchestrator.core.validation.kinds import Path, check_tool_name
from orchestrator.core.validation.review import Review


def check_effects(review: Review) -> None:
    """Keys where they are required, care where money moves, gates that may not approve alone."""
    for key, step in review.steps.items():
        path = ("steps", key)
        if isinstance(step, ToolStep):
            _check_required(review, path, step.tool, step.effect)
            _check_key_header(review, path, step)
        if step.effect is not None:
            risky = step.effect.money or step.irreversible
            _check_doubt(review, (*path, "effect"), step.effect, risky=risky)
        if step.compensate is not None:
            _check_compensate(review, (*path, "compensate"), step.compensate)
            _check_two_keys(review, path, step.effect, step.compensate.effect)
        if isinstance(step, HumanGateStep) and step.on_timeout == "approve":
            _check_silent_approval(review, key)
    _check_budget(review)


def _check_required(review: Review, path: Path, tool: str, effect: Effect | None) -> None:
    facts = review.catalogue.tool(tool)
    if facts is not None and facts.effect == "required" and effect is None:
        review.error(
            "effect_without_key",
            (*path, "effect"),
            f'{tool} acts on the outside world: add effect: {{key: "…:${{{{ input.… }}}}"}}.',
        )


def _check_key_header(review: Review, path: Path, block: ToolStep | Compensate) -> None:
    """A header of the document in place of the key would let the provider do it twice, or once for
    all runs. (The engine's key is sent in any case.)"""
    facts, given = review.catalogue.tool(block.tool), block.input
    if facts is None or facts.key_header is None or block.effect is None:
        return
    headers = given.get("headers") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(headers, dict):
        return
    name = str(given.get("key_header") or facts.key_header)
    for header in headers:
        if header.lower() == name.lower():
            review.error(
                "key_header_taken",
                (*path, "input", "headers", header),
                f"{name} carries the effect's key: take it out of headers; what the key is made of "
                "stands in effect.key.",
            )


def _check_doubt(review: Review, path: Path, effect: Effect, *, risky: bool) -> None:
    if risky and effect.on_doubt != "review":
        review.error(
            "unsafe_on_doubt",
            (*path, "on_doubt"),
            f"{effect.on_doubt} could move money or do what cannot be undone twice, or not at "
            "all: use review.",
        )


def _check_compensate(review: Review, path: Path, block: Compensate) -> None:
    check_tool_name(review, (*path, "tool"), block.tool)
    _check_key_header(review, path, block)
    _check_required(review, path, block.tool, block.effect)
    if block.effect is not None:
        _check_doubt(review, (*path, "effect"), block.effect, risky=block.effect.money)


def _check_two_keys(review: Review, path: Path, effect: Effect | None, undo: Effect | None) -> None:
    """Under the key of what it undoes a compensation would clash, and so undo nothing."""
    if effect is not None and undo is not None and effect.key == undo.key:
        review.error(
            "same_key_to_undo",
            (*path, "compensate", "effect", "key"),
            "undoing is a business action of its own: give it a key of its own, e.g. "
            '"refund:…" for "pay:…".',
        )


def _check_silent_approval(review: Review, key: str) -> None:
    behind = sorted(
        other for other in review.graph.reachable([key]) - {key} if _is_grave(review.steps[other])
    )
    if behind:
        review.error(
            "approve_without_person",
            ("steps", key, "on_timeout"),
            f"{', '.join(behind[:5])} can follow, which moves money or cannot be undone: use "
            "reject or escalate.",
        )


def _is_grave(step: AnyStep) -> bool:
    return step.irreversible or (step.effect is not None and step.effect.money)


def _check_budget(review: Review) -> None:
    budget = review.document.budget
    if budget is None or budget.cost_usd is None:
        return
    for key, step in review.steps.items():
        if step.cost_limit_usd is not None and step.cost_limit_usd > budget.cost_usd:
            review.error(
                "budget_too_small",
                ("budget", "cost_usd"),
                f"the run may cost {format_money(budget.cost_usd)} USD, but {key} alone "
                f"{format_money(step.cost_limit_usd)}: raise the budget or lower the limit.",
            )
