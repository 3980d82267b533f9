"""C37: a file is the old one or the new one, never half of it; its content is the receipt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.adapters import files
from orchestrator.authoring import Permanent
from orchestrator.models import Effect
from tests.effects.forked import die, dies
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import TENANT, events, lose, output, ran, started

NEW = "new\n" * 1000


@pytest.fixture
def root(tmp_path: Path, options: Any) -> Path:
    options(FILES_ROOT=str(tmp_path))
    files.write(tenant=TENANT, path="report.txt", content=b"old")
    return tmp_path / TENANT


def write(text: str = NEW, **effect: Any) -> dict[str, Any]:
    effect = {"key": "report:1", **effect}
    given = {"path": "report.txt", "text": text}
    return {"type": "tool", "tool": "file.write", "input": given, "effect": effect}


def test_the_receipt_of_a_file_is_the_hash_of_its_content(carrier: Carrier, root: Path) -> None:
    run = ran(carrier, {"a": write()})

    effect = Effect.objects.get()
    assert effect.external_ref == f"sha256:{output(run)['a']['sha256']}"
    assert (effect.status, (root / "report.txt").read_text()) == ("applied", NEW)


@pytest.mark.parametrize("moment", ["written, not renamed", "renamed, no receipt"])
def test_a_worker_that_dies_leaves_the_old_or_the_new_file_and_the_next_one_mends_it(
    carrier: Carrier, root: Path, monkeypatch: Any, moment: str
) -> None:
    run_id = started({"a": write()})
    carrier.messages.clear()
    rename = os.rename

    def deadly(source: Any, target: Any, **folders: Any) -> None:
        if moment == "renamed, no receipt":
            rename(source, target, **folders)
        die()

    def work() -> None:
        os.rename = deadly
        engine.run_step(engine.Order(run_id=run_id, key="a"), Always())

    dies(work)
    renamed = moment == "renamed, no receipt"
    assert (root / "report.txt").read_text() == (NEW if renamed else "old")
    assert len(list(root.iterdir())) == (1 if renamed else 2), "the draft lies beside it"
    n_writes = []
    monkeypatch.setattr(os, "rename", lambda *a, **f: (n_writes.append(a), rename(*a, **f)))

    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()

    assert output(run_id)["a"]["size"] == len(NEW)
    assert len(n_writes) == (0 if renamed else 1)
    assert (root / "report.txt").read_text() == NEW
    assert [path.name for path in root.iterdir()] == ["report.txt"], "no draft is left"
    assert events(run_id).count("effect.receipt") == 1


def test_a_writer_that_was_thought_dead_no_longer_replaces_the_file(
    root: Path, monkeypatch: Any
) -> None:
    rename, mark = os.rename, "a1b2"

    def overtaken(source: Any, target: Any, **folders: Any) -> None:
        assert files.drop_drafts(tenant=TENANT, path="report.txt", mark=mark) == 1
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", overtaken)
    with pytest.raises(Permanent):
        files.write(tenant=TENANT, path="report.txt", content=b"late", mark=mark)

    assert (root / "report.txt").read_text() == "old"


def test_only_the_drafts_of_one_effect_are_dropped(root: Path) -> None:
    for name in (".a1b2-1.part", ".a1b2-2.part", ".ffff-1.part", ".-1.part", "a1b2-1.part"):
        (root / name).write_text("x")

    assert files.drop_drafts(tenant=TENANT, path="report.txt", mark="a1b2") == 2
    assert files.drop_drafts(tenant=TENANT, path="report.txt", mark="") == 0
    assert files.drop_drafts(tenant=TENANT, path="new/folder.txt", mark="a1b2") == 0
    left = {path.name for path in root.iterdir() if path.suffix == ".part"}
    assert left == {".ffff-1.part", ".-1.part", "a1b2-1.part"}


def test_a_missing_or_huge_file_is_not_the_one_that_was_written(root: Path) -> None:
    (root / "huge").write_bytes(b"x" * (files.MAX_FILE_BYTES + 1))

    assert files.digest(tenant=TENANT, path="none") is None
    assert files.digest(tenant=TENANT, path="no/folder") is None
    assert files.digest(tenant=TENANT, path="huge") is None
    with pytest.raises(Permanent):
        files.digest(tenant=TENANT, path="../x")
