"""One review of a document: what all checks share, and where their findings go."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from orchestrator.core.document import Document, Edge, document_edges
from orchestrator.core.graph import Graph
from orchestrator.core.problems import LineOf, Problem, Severity, pointer_parts, pointer_to
from orchestrator.core.step_kinds import AnyStep
from orchestrator.core.validation.catalogue import Catalogue


class Review:
    """Collects problems. Checks call ``error`` and ``warn`` with the path of what is wrong."""

    def __init__(self, document: Document, catalogue: Catalogue, line_of: LineOf) -> None:
        self.document = document
        self.catalogue = catalogue
        self.problems: list[Problem] = []
        self._line_of = line_of

    @property
    def steps(self) -> Mapping[str, AnyStep]:
        """The document's steps."""
        return self.document.steps

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, those to missing steps included."""
        return document_edges(self.document)

    @cached_property
    def edges_into(self) -> Mapping[str, tuple[Edge, ...]]:
        """The edges of each step, in the order of its needs."""
        into: dict[str, list[Edge]] = {key: [] for key in self.steps}
        for edge in self.edges:
            if edge.target in into:
                into[edge.target].append(edge)
        return {key: tuple(edges) for key, edges in into.items()}

    @cached_property
    def owners(self) -> Mapping[str, tuple[str, ...]]:
        """For each fallback step, the steps that name it."""
        owners: dict[str, tuple[str, ...]] = {}
        for key, step in self.steps.items():
            if step.fallback is not None:
                owners[step.fallback] = (*owners.get(step.fallback, ()), key)
        return owners

    @cached_property
    def graph(self) -> Graph:
        """Steps and edges, with an arrow from each step to its fallback."""
        arrows = [(edge.source, edge.target) for edge in self.edges]
        arrows += [(owner, key) for key, owners in self.owners.items() for owner in owners]
        return Graph(self.steps, arrows)

    @cached_property
    def sight(self) -> Graph:
        """Like ``graph``; what follows a step also follows its fallback, and may name it."""
        arrows = [(edge.source, edge.target) for edge in self.edges]
        for key, owners in self.owners.items():
            arrows += [(owner, key) for owner in owners]
            arrows += [(key, e.target) for e in self.edges if e.source in owners]
        return Graph(self.steps, arrows)

    def error(self, code: str, path: tuple[str | int, ...], message: str) -> None:
        """What must be mended before the document can be published."""
        self._add("error", code, pointer_to(*path), message)

    def warn(self, code: str, path: tuple[str | int, ...], message: str) -> None:
        """What is allowed, but rarely meant."""
        self._add("warning", code, pointer_to(*path), message)

    def _add(self, severity: Severity, code: str, pointer: str, message: str) -> None:
        problem = Problem(severity, code, pointer, self._line(pointer), message)
        if problem not in self.problems:
            self.problems.append(problem)

    def _line(self, pointer: str) -> int | None:
        """The line of the pointer, or of the nearest thing around it that was written."""
        parts = pointer_parts(pointer)
        while True:
            line = self._line_of(pointer_to(*parts))
            if line is not None or not parts:
                return line
            parts.pop()
