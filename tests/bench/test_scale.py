"""The tables of the scale page are those that its script prints."""

from __future__ import annotations

from bench.scale import Assumed, Measured, tables
from config.env import BASE_DIR


def test_the_page_shows_the_tables_that_are_printed() -> None:
    page = (BASE_DIR / "docs" / "scale.md").read_text()
    assert tables(Measured(), Assumed()) in page, "python -m bench.scale prints them"
