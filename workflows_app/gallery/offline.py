"""What the offline model ``demo`` answers in the gallery's workflows: rules, not a model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Protocol

from workflows_app.gallery import knowledge

_HIGH = re.compile(r"\b(urgent|immediately|upset|angry|lawyer|unacceptable)\b", re.IGNORECASE)
_LOW = re.compile(r"\b(no hurry|whenever|just wondering|curious)\b", re.IGNORECASE)
_MONEY = re.compile(r"([0-9]+(?:\.[0-9]{1,2})?) ([A-Z]{3})")
_THREAT = re.compile(r"\b(will find you|regret this|hurt you|kill)\b", re.IGNORECASE)
_FRAUD = re.compile(r"\b(send me your (password|pin)|guaranteed profit)\b", re.IGNORECASE)
_RUDE = re.compile(r"\b(idiot|stupid|shut up|hate)\b", re.IGNORECASE)
_FIELD = re.compile(r"^([A-Z][a-z]+): (.*?)(?=^[A-Z][a-z]+: |\Z)", re.MULTILINE | re.DOTALL)


class Question(Protocol):
    """What is known of a question to a model: who asks, and what."""

    @property
    def workflow(self) -> str:
        """The asking workflow's name."""
        ...

    @property
    def step(self) -> str:
        """The asking step's key."""
        ...

    @property
    def prompt(self) -> str:
        """The question."""
        ...


def answer(question: Question) -> str | None:
    """The answer to a question of the gallery, or None for any other.

    Named by the setting ``OFFLINE_DEMO``. A prompt that was changed in the gallery's document
    still gets an answer as long as it keeps its ``Name: value`` lines.
    """
    write = _ANSWERS.get((question.workflow, question.step))
    if write is None:
        return None
    # The first line of a name is the document's; a customer may have written such a line below it.
    found = reversed(_FIELD.findall(question.prompt))
    fields = {name: value.strip() for name, value in found}
    answered = write(fields)
    return answered if isinstance(answered, str) else json.dumps(answered, ensure_ascii=False)


def _classify(fields: Mapping[str, str]) -> dict[str, Any]:
    subject, message = fields.get("Subject", ""), fields.get("Message", "")
    text = f"{subject} {message}"
    urgency = "high" if _HIGH.search(text) else "low" if _LOW.search(text) else "normal"
    return {
        "category": knowledge.best_category(text),
        "urgency": urgency,
        "summary": f"The customer writes about: {subject or message[:80] or 'nothing'}.",
    }


def _research(fields: Mapping[str, str]) -> dict[str, Any]:
    found = knowledge.search(f"{fields.get('Summary', '')} {fields.get('Message', '')}", limit=2)
    return {
        "articles": [{"id": article.id, "title": article.title} for article, _ in found],
        "findings": [article.advice for article, _ in found]
        or ["The knowledge base has no article on this; a colleague has to look into it."],
    }


def _draft(fields: Mapping[str, str]) -> dict[str, Any]:
    findings = _object(fields.get("Research", "")).get("findings") or []
    tickets = _object(fields.get("History", "")).get("tickets") or []
    name = fields.get("Customer", "").split("@")[0] or "customer"
    lines = [f"Dear {name},", "", _opening(fields.get("Urgency", ""))]
    lines += [str(finding) for finding in findings]
    if tickets:
        lines.append("Thank you for staying with us after your earlier requests.")
    lines += ["", "Kind regards", "The support team"]
    ticket = fields.get("Ticket", "")
    return {"subject": f"Your request {ticket}".strip(), "reply": "\n".join(lines)}


def _opening(urgency: str) -> str:
    if urgency == "high":
        return "We are sorry for the trouble and have looked into your request at once."
    return "Thank you for your message. We have looked into your request."


def _read_page(fields: Mapping[str, str]) -> dict[str, Any]:
    """What stands on a page as ``Name: value``; each ``?`` for a letter makes the reading less
    sure."""
    text = " ".join(fields.values())
    total = _MONEY.match(fields.get("Total", ""))
    return {
        "vendor": fields.get("Vendor") or None,
        "invoice_number": fields.get("Invoice") or None,
        "total_cents": int(Decimal(total[1]) * 100) if total else None,
        "currency": total[2] if total else None,
        "confidence": max(0.1, round(0.97 - 0.12 * text.count("?"), 2)),
    }


def _screen(fields: Mapping[str, str]) -> str:
    text = fields.get("Text", "")
    if _THREAT.search(text) or _FRAUD.search(text):
        return "harmful"
    return "unclear" if _RUDE.search(text) else "harmless"


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


_ANSWERS: Mapping[tuple[str, str], Callable[[Mapping[str, str]], dict[str, Any] | str]] = {
    ("customer_support", "classify"): _classify,
    ("customer_support", "research"): _research,
    ("customer_support", "draft"): _draft,
    ("document_processing", "read"): _read_page,
    ("content_moderation", "screen"): _screen,
}
