"""Expressions of documents: bare CEL (`programs`) and JSON with ``${{ CEL }}`` (`templates`)."""

from __future__ import annotations

from orchestrator.core.cel_text import ExpressionError
from orchestrator.core.programs import VISIBLE_NAMES, Program, compile_expression
from orchestrator.core.templates import Template, compile_template, template_texts

__all__ = [
    "VISIBLE_NAMES",
    "ExpressionError",
    "Program",
    "Template",
    "compile_expression",
    "compile_template",
    "template_texts",
]
