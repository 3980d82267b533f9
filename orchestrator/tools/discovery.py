"""Finding every tool at start: those in the box and the ``tools.py`` of each installed app."""

from __future__ import annotations

from importlib import import_module

from django.utils.module_loading import autodiscover_modules

IN_THE_BOX = ("files", "http", "mail", "transform")


def discover_tools() -> None:
    """Import every module that registers tools; safe to repeat.

    Raises what a broken module raises, and ``DuplicateTool`` for two functions under one name: a
    process that knows fewer tools than the others must not start.
    """
    for name in IN_THE_BOX:
        import_module(f"orchestrator.tools.{name}")
    autodiscover_modules("tools")
