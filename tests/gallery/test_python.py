"""The gallery's workflows in both faces: the YAML and the Python are one document."""

from __future__ import annotations

import pytest

from orchestrator.authoring import Workflow, to_python
from orchestrator.core.definition import canonical_json
from orchestrator.core.source import load_yaml
from workflows_app.discovery import find_workflows
from workflows_app.gallery import files


def in_python(name: str) -> Workflow:
    (found,) = (each.flow for each in find_workflows(["gallery"]) if each.flow.name == name)
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_each_workflow_is_the_same_in_yaml_and_in_python(path) -> None:
    value = load_yaml(path.read_bytes()).value
    flow = in_python(path.stem)

    assert flow.document() == value
    assert flow.canonical == canonical_json(value)
    assert list(flow.document()["steps"]) == list(value["steps"])


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_each_workflow_can_be_taken_from_yaml_to_python(path) -> None:
    value = load_yaml(path.read_bytes()).value
    names: dict[str, Workflow] = {}
    exec(compile(to_python(value), path.stem, "exec"), names)

    assert names["flow"].canonical == canonical_json(value)


def test_both_faces_hold_the_same_workflows() -> None:
    names = {each.flow.name for each in find_workflows(["gallery"])}

    assert names == {path.stem for path in files()}
