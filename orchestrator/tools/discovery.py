"""Finding every tool at start: those in the box and the ``tools.py`` of each installed app."""

from __future__ import annotations

from django.utils.module_loading import autodiscover_modules


def discover_tools() -> None:
    """Import the ``tools`` of every installed app, the engine's box among them; safe to repeat.

    Raises what a broken module raises, and ``DuplicateTool`` for two functions under one name: a
    process that knows fewer tools than the others must not start.
    """
    autodiscover_modules("tools")
