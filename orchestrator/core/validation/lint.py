"""Warnings: what may be published, but will rarely do what was meant."""

from __future__ import annotations

from orchestrator.core.definition import effective_retry
from orchestrator.core.errors import ErrorClass
from orchestrator.core.step_kinds import AgentStep, AnyStep, HumanGateStep, ToolStep
from orchestrator.core.validation.review import Review


def check_habits(review: Review) -> None:
    """Operational lint, step by step."""
    for key, step in review.steps.items():
        _warn_of_doubt(review, key, step)
        _warn_of_no_way_back(review, key, step)
        _warn_of_retry(review, key, step)
        _warn_of_strangers(review, key, step)
        if step.late == "cancel" and step.join.kind in ("all", "strict"):
            review.warn(
                "late_without_any",
                ("steps", key, "late"),
                f"join: {step.join.kind} waits for every branch, so none is late: use any or "
                "at_least, or remove late.",
            )


def _warn_of_doubt(review: Review, key: str, step: AnyStep) -> None:
    if not isinstance(step, ToolStep) or step.effect is None:
        return
    facts = review.catalogue.tool(step.tool)
    if facts is None or facts.idempotent or facts.reconciles:
        return
    if (
        step.effect.on_doubt == "review"
        and effective_retry(step, review.document.defaults).max_retries
    ):
        review.warn(
            "retry_not_idempotent",
            ("steps", key, "tool"),
            f"{step.tool} is neither idempotent nor able to look an effect up, so a lost answer "
            "waits for a person: give the tool reconcile=…, or choose on_doubt.",
        )


def _warn_of_no_way_back(review: Review, key: str, step: AnyStep) -> None:
    has_effect = step.effect is not None and step.effect.on_doubt == "review"
    if has_effect and step.compensate is None and not step.irreversible and review.graph.after[key]:
        review.warn(
            "no_compensation",
            ("steps", key),
            "its effect stays when a later step fails: add compensate, or irreversible: true.",
        )


def _warn_of_retry(review: Review, key: str, step: AnyStep) -> None:
    if step.retry is None:
        return
    if step.retry.on is not None and ErrorClass.PERMANENT in step.retry.on:
        review.warn(
            "never_retried",
            ("steps", key, "retry", "on"),
            "permanent failures are never retried: remove permanent.",
        )
    policy = effective_retry(step, review.document.defaults)
    if policy.base_delay > policy.max_delay:
        review.warn(
            "delay_above_cap",
            ("steps", key, "retry", "base_delay"),
            "base_delay is longer than max_delay, which cuts it: make it shorter.",
        )


def _warn_of_strangers(review: Review, key: str, step: AnyStep) -> None:
    """Such a call would be refused when it comes (``core.trust``); say so at publish."""
    if not isinstance(step, AgentStep) or not step.tools or not _hears_strangers(step):
        return
    if any(isinstance(review.steps[k], HumanGateStep) for k in review.graph.ancestors(key)):
        return
    for index, name in enumerate(step.tools):
        facts = review.catalogue.tool(name)
        if facts is None or (facts.idempotent and facts.effect is None and not facts.reconciles):
            continue
        review.warn(
            "agent_without_gate",
            ("steps", key, "tools", index),
            f"{name} acts on the outside, and the question holds what nobody vouched for, so the"
            " agent will not be let: put a human_gate before it, or let a step behind it act.",
        )


def _hears_strangers(step: AgentStep) -> bool:
    return step.prompt is None or any("${{" in text for text in (step.prompt, step.system or ""))
