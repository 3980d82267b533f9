"""Workflows written in Python: those of the ``workflows.py`` of every installed app."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from django.apps import AppConfig, apps
from django.utils.module_loading import module_has_submodule

from orchestrator.authoring import Workflow, WorkflowError
from orchestrator.core.problems import Problem, suggestion

MODULE = "workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A workflow and the app whose module names it."""

    flow: Workflow
    app: str


def find_workflows(labels: Iterable[str] = ()) -> list[Found]:
    """The workflows of the installed apps, or of those with these ``labels`` only.

    Raises WorkflowError as ``workflows_of``, and for an unknown label.
    """
    return workflows_of(_apps(labels))


def workflows_of(configs: Iterable[AppConfig]) -> list[Found]:
    """Every ``Workflow`` that a ``workflows.py`` has at its top level, children before those that
    call them, else in the order of apps and lines.

    Raises WorkflowError for a wrong workflow and for two under one name; what else a broken module
    raises.
    """
    found: dict[str, Found] = {}
    for app in configs:
        for flow in _flows(app):
            first = found.setdefault(flow.name, Found(flow=flow, app=app.label))
            if first.flow is not flow:
                raise WorkflowError(
                    f"two workflows are called {flow.name!r}, the other one in"
                    f" {first.flow.place.file}:{first.flow.place.line}: rename one of them",
                    file=flow.place.file,
                    line=flow.place.line,
                )
    return _children_first(found)


def _apps(labels: Iterable[str]) -> list[AppConfig]:
    wanted = list(labels)
    installed = {app.label: app for app in apps.get_app_configs()}
    for label in wanted:
        if label not in installed:
            raise WorkflowError(f"no app is called {label!r}: {suggestion(label, installed)}")
    return [installed[label] for label in wanted] if wanted else list(installed.values())


def _flows(app: AppConfig) -> Iterable[Workflow]:
    if app.module is None or not module_has_submodule(app.module, MODULE):
        return []
    name = f"{app.name}.{MODULE}"
    __import__(name)
    named = vars(sys.modules[name]).values()
    return dict.fromkeys(each for each in named if isinstance(each, Workflow))


def _children_first(found: dict[str, Found]) -> list[Found]:
    ordered: dict[str, Found] = {}
    under_way: set[str] = set()

    def visit(name: str) -> None:
        if name in ordered or name in under_way or name not in found:
            return  # what calls in a circle is refused when it is published
        under_way.add(name)
        for child in found[name].flow.children:
            visit(child)
        ordered[name] = found[name]

    for name in found:
        visit(name)
    return list(ordered.values())


def placed(flow: Workflow, problems: Iterable[Problem]) -> list[str]:
    """One line for each problem: the file and line that wrote the step which has it."""
    lines = []
    for each in problems:
        place = flow.written_at(each.pointer)
        pointer = each.pointer or "(document)"
        lines.append(
            f"{place.file}:{place.line}: {each.severity} {each.code} {pointer}: {each.message}"
        )
    return lines
