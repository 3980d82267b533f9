"""Parameters that must stand in the document as they are: no run can put a value into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.core.templates import template_texts


def not_literal(template: Any, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the input's template leaves to the run, or could; in order.

    An input that is no object of the document (merged outputs, one ``${{ }}``) leaves all of them.
    """
    if not isinstance(template, Mapping) or any("${{" in key for key in template):
        return list(names)
    return [name for name in names if any(template_texts(template.get(name)))]
