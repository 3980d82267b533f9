"""``manage.py explain_canvas``: what it shows is what travels."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command

from orchestrator.core.canvas import messages
from orchestrator.core.canvas_walk import walk
from orchestrator.core.compiling import compile_workflow
from orchestrator.core.definition import parse_document
from orchestrator.engine.blueprints import default_queues
from tests.chaos import shapes
from tests.chaos.shapes import Shape
from tests.tasks.conftest import CHORD


@pytest.fixture
def explained(tmp_path: Path) -> Any:
    def explain(shape: Shape, **options: Any) -> str:
        file = tmp_path / f"{shape.name}.json"
        file.write_bytes(orjson.dumps(shape.document))
        said = StringIO()
        call_command("explain_canvas", str(file), stdout=said, **options)
        return said.getvalue()

    return explain


def test_a_chain_is_shown_message_by_message_with_its_queues(explained: Any) -> None:
    assert explained(shapes.chain("three", 4, ("tool", "tool", "agent"))) == (
        "three: 4 steps in 3 messages (neighbours on a queue share one)\n"
        "\n"
        "At the start\n"
        "  Chain of 3 messages, one after the other\n"
        "  ├─ tool   s1 → s2\n"
        "  ├─ agent  s3\n"
        "  ╰─ tool   s4\n"
    )


def test_a_chord_is_shown_with_its_headers_and_body(explained: Any) -> None:
    said = explained(CHORD)

    assert "Chord of 4 headers; the body when all have returned" in said
    assert said.rstrip().endswith("╰▶ tool   join")


def test_without_fusion_every_step_has_a_message_of_its_own(explained: Any) -> None:
    said = explained(shapes.ONE_QUEUE, no_fuse=True)

    assert said.startswith("one_queue: 12 steps in 12 messages (a task of its own for every step)")


def test_a_worker_that_goes_on_needs_no_message(explained: Any) -> None:
    assert "After begin\n  ↪ tool   b0   no message: the same worker goes on\n" in explained(
        shapes.FAN
    )


def test_a_published_workflow_is_found_by_its_name(db: None) -> None:
    shapes.publish_shapes(shapes.CHAIN)
    said = StringIO()

    call_command("explain_canvas", "chain", stdout=said)
    assert said.getvalue().startswith("chain: 10 steps in 8 messages")
    call_command("explain_canvas", "chain@1", tenant=shapes.TENANT, stdout=said)
    with pytest.raises(CommandError, match="no workflow chain@9 is published"):
        call_command("explain_canvas", "chain@9", stdout=said)


@pytest.mark.parametrize(
    ("text", "said"),
    [("steps: [", "not valid YAML"), ("schema: orchestrator/v1\nname: x\nsteps: {}\n", "/steps")],
)
def test_a_file_that_is_not_right_is_told_with_line_and_place(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)

    with pytest.raises(CommandError, match=r"bad\.yaml cannot be explained:") as refused:
        call_command("explain_canvas", str(file))
    assert said in str(refused.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.yaml cannot be read: No such file"):
        call_command("explain_canvas", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("shape", [*shapes.ALL, CHORD], ids=lambda shape: shape.name)
def test_the_walk_meets_every_step_once(shape: Shape, fuse: bool) -> None:
    document, problems = parse_document(shape.document)
    assert document is not None, problems
    workflow = compile_workflow(document, shape.document, queues=default_queues(), pins={})

    met = [
        ref.position
        for wave in walk(workflow, fuse=fuse)
        for stretch in [
            *([wave.goes_on] if wave.goes_on else []),
            *(message for canvas in wave.canvases for message in messages(canvas)),
        ]
        for ref in stretch.refs
    ]
    assert sorted(met) == [step.position for step in workflow.forward]
