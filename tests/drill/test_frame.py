"""A drill that breaks, dies, hangs or says nothing is seen as such."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.drill import __main__ as frame
from tests.drill.line import Line, Size
from tests.drill.running import Entry
from tests.drill.table import table

HELD = Line("P0", "a promise that holds", 3, {"doubles": 0})


def held(size: Size, seed: int) -> Iterator[Line]:
    yield HELD


def broken(size: Size, seed: int) -> Iterator[Line]:
    yield Line("P0", f"seed {seed} and size {size} reach a drill", 1, {}, ["this one is doubled"])


def raises(size: Size, seed: int) -> Iterator[Line]:
    yield HELD
    raise KeyError("nobody wrote this down")


def dies(size: Size, seed: int) -> Iterator[Line]:
    yield HELD
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(size: Size, seed: int) -> Iterator[Line]:
    threading.Event().wait()
    yield HELD


def silent(size: Size, seed: int) -> Iterator[Line]:
    yield from ()


def tries_nothing(size: Size, seed: int) -> Iterator[Line]:
    yield Line("P0", "a promise that was never put to the test", 0)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a round whose promises are broken on purpose leaves its logs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def drilled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *names: str
) -> tuple[int, str]:
    entries = tuple(
        Entry(name, f"{__name__}:{name}", limit_s=8 if name == "hangs" else 60) for name in names
    )
    monkeypatch.setattr(frame, "DRILLS", entries)
    status = frame.main(["--seed", "7", "--jobs", "8"])
    return status, capsys.readouterr().out


def test_a_round_whose_promises_hold_ends_with_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = drilled(monkeypatch, capsys, "held")

    assert status == 0
    assert "1 of 1 lines as promised" in said


def test_whatever_goes_wrong_in_a_drill_is_named_and_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = drilled(
        monkeypatch, capsys, "held", "broken", "raises", "dies", "hangs", "silent", "tries_nothing"
    )

    assert status == 1
    assert "3 of 9 lines as promised" in said
    for words in (
        "seed 7 and size short reach a drill\n  this one is doubled",
        "KeyError: 'nobody wrote this down'",
        "ended with status -9",
        "it said nothing",
        "nothing was tried",
    ):
        assert words in said
    assert re.search(r"ended with status (143|-15) after (8|9|1\d) s", said)


def test_the_lines_are_written_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(frame, "DRILLS", (Entry("held", f"{__name__}:held"),))
    frame.main(["--seed", "7", "--json", str(tmp_path / "lines")])

    (line,) = map(orjson.loads, (tmp_path / "lines").read_bytes().splitlines())
    assert line.pop("seconds") > 0
    assert line == HELD.as_json() | {"name": "held", "size": "short", "seed": 7}


def test_an_unknown_drill_is_named_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match="no drill is called nonsense; there are "):
        frame.main(["--only", "nonsense"])


def test_a_long_sentence_is_folded_and_a_figure_is_readable() -> None:
    said = table([Line("P1", "word " * 40, 20_000, {"p99 s": 1.23456, "kills": 2000})], width=120)

    assert max(map(len, said.splitlines())) <= 120
    assert "20,000" in said
    assert "p99 s 1.23, kills 2,000" in " ".join(said.split())
