"""All that can be wrong with a document, found at once and said with how to mend it.

``validate`` reviews a typed document; ``check_document`` takes plain JSON and reviews what is
readable of it even when parts are not. Nothing here raises for a bad document.
"""

from __future__ import annotations

from typing import Any

from orchestrator.core.definition import Document, parse_document
from orchestrator.core.problems import LineOf, Problem, no_line
from orchestrator.core.validation.catalogue import Catalogue, ToolFacts, ToolSpec
from orchestrator.core.validation.effects import check_effects
from orchestrator.core.validation.kinds import check_kinds
from orchestrator.core.validation.lint import check_habits
from orchestrator.core.validation.literals import check_literals
from orchestrator.core.validation.naming import check_expressions
from orchestrator.core.validation.review import Review
from orchestrator.core.validation.salvage import readable_part
from orchestrator.core.validation.size import size_problems
from orchestrator.core.validation.structure import check_structure
from orchestrator.core.validation.typing import check_types
from orchestrator.core.validation.written_schemas import check_schemas

__all__ = ["Catalogue", "Problem", "ToolFacts", "ToolSpec", "check_document", "validate"]


def validate(
    document: Document, catalogue: Catalogue, *, line_of: LineOf = no_line
) -> list[Problem]:
    """Every problem of a typed document, errors first, then by line and pointer.

    A document with no ``error`` among them may be published.
    """
    review = Review(document, catalogue, line_of)
    check_structure(review)
    check_kinds(review)
    check_effects(review)
    check_literals(review)
    check_schemas(review)
    check_types(review, check_expressions(review))
    check_habits(review)
    return _in_order(review.problems)


def check_document(
    value: Any, catalogue: Catalogue, *, line_of: LineOf = no_line
) -> tuple[Document | None, list[Problem]]:
    """Parse and validate plain JSON: the document (None if its shape is wrong) and all problems.

    When the shape is wrong somewhere, the rest is reviewed without it, so that a cycle is
    reported together with a misspelt key.
    """
    too_big = size_problems(value)
    if too_big:
        return None, too_big
    document, problems = parse_document(value, line_of=line_of)
    if document is not None:
        return document, validate(document, catalogue, line_of=line_of)
    rest, unsure = readable_part(value, problems)
    if rest is not None:
        more = validate(rest, catalogue, line_of=line_of)
        problems += [problem for problem in more if not _doubtful(problem, unsure)]
    return None, _in_order(problems)


def _doubtful(problem: Problem, unsure: set[str]) -> bool:
    """Whether a finding may only come from what had to be left out."""
    return any(
        problem.pointer == pointer
        or problem.pointer.startswith(pointer + "/")
        or pointer.startswith(problem.pointer + "/")
        for pointer in unsure
    )


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(
        problems, key=lambda p: (p.severity != "error", p.line or 0, p.pointer, p.code, p.message)
    )
