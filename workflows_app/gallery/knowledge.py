"""The knowledge base of the demo's support desk, and how it is searched."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One article; ``advice`` is what it says in one sentence to a customer."""

    id: str
    title: str
    category: str
    words: frozenset[str]
    advice: str


def _article(number: str, title: str, category: str, words: str, advice: str) -> Article:
    return Article(
        id=number, title=title, category=category, words=frozenset(words.split()), advice=advice
    )


ARTICLES = (
    _article(
        "KB-101",
        "Duplicate charges",
        "billing",
        "charged twice duplicate double payment second card statement",
        "A second payment for one order is refunded to the same card within 3 to 5 working days.",
    ),
    _article(
        "KB-102",
        "Refunds and how long they take",
        "billing",
        "refund money back return days card bank",
        "Refunds go back to the original means of payment; the bank shows them within 5 days.",
    ),
    _article(
        "KB-110",
        "Invoices and tax numbers",
        "billing",
        "invoice tax receipt bill company address",
        "Invoices can be downloaded and corrected under Account, Billing.",
    ),
    _article(
        "KB-201",
        "Resetting a password",
        "account",
        "password login sign locked reset access account",
        "A new password can be set through 'Forgot password'; the link is valid for one hour.",
    ),
    _article(
        "KB-210",
        "Changing the mail address",
        "account",
        "email address change profile name account",
        "The address is changed under Account, Profile, and confirmed by a link.",
    ),
    _article(
        "KB-301",
        "The app does not start or shows an error",
        "technical",
        "error crash start bug broken app loading fails slow",
        "Update to the newest version and restart; then send us the error's reference.",
    ),
    _article(
        "KB-310",
        "Synchronising between devices",
        "technical",
        "sync device phone tablet missing data lost",
        "Sign in on both devices and choose Settings, Sync now.",
    ),
    _article(
        "KB-401",
        "Where is my parcel",
        "shipping",
        "parcel delivery shipping late tracking arrived package order where",
        "The tracking link in the dispatch mail shows the parcel; lost ones are sent again.",
    ),
    _article(
        "KB-402",
        "Damaged goods",
        "shipping",
        "damaged broken arrived return replacement parcel",
        "Send a photo within 14 days; a replacement leaves on the next working day.",
    ),
)


def search(query: str, *, limit: int) -> list[tuple[Article, float]]:
    """The articles that share words with the query, best first, with a score from 0 to 1."""
    asked = frozenset(_WORD.findall(query.lower()))
    scored = [
        (article, round(_score(article, asked), 3))
        for article in ARTICLES
        if _score(article, asked) > 0
    ]
    return sorted(scored, key=lambda found: (-found[1], found[0].id))[:limit]


def best_category(text: str) -> str:
    """The category of the best article, or ``other``."""
    found = search(text, limit=1)
    return found[0][0].category if found else "other"


def _score(article: Article, asked: frozenset[str]) -> float:
    return len(article.words & asked) / min(len(article.words), 6)
