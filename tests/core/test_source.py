from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.definition import canonical_json, digest
from orchestrator.core.source import (
    MAX_BYTES,
    SourceError,
    load_json,
    load_yaml,
    parse_json_body,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def refused(load: Any, data: bytes) -> list[tuple[str, str, int | None]]:
    with pytest.raises(SourceError) as caught:
        load(data)
    return [(p.code, p.pointer, p.line) for p in caught.value.problems]


def codes(load: Any, data: bytes) -> set[str]:
    return {code for code, _, _ in refused(load, data)}


class QuotedText(yaml.SafeDumper):
    """PyYAML writes YAML 1.1, where the text 0E0 needs no quotes; in YAML 1.2 it is a number."""


QuotedText.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@given(VALUES)
def test_json_reads_what_was_written(value: Any) -> None:
    assert load_json(json.dumps(value).encode()).value == value
    assert parse_json_body(json.dumps(value, ensure_ascii=False).encode()) == value


@given(VALUES)
def test_the_yaml_and_the_json_face_have_one_digest(value: Any) -> None:
    # A block style dump, so that the YAML reader and not the JSON one is asked.
    text = yaml.dump(
        {"value": value}, Dumper=QuotedText, default_flow_style=False, allow_unicode=True
    )
    from_yaml = load_yaml(text.encode()).value
    from_json = load_json(json.dumps({"value": value}).encode()).value
    assert digest(canonical_json(from_yaml)) == digest(canonical_json(from_json))


@given(VALUES)
def test_canonical_json_reads_back_and_ignores_the_order_of_keys(value: Any) -> None:
    data = canonical_json(value)
    again = load_json(data).value
    assert again == value
    assert canonical_json(again) == data
    assert canonical_json({"b": value, "a": 1}) == canonical_json({"a": 1, "b": value})


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_the_readers_fail_otherwise(data: bytes) -> None:
    for load in (load_json, load_yaml, parse_json_body):
        with contextlib.suppress(SourceError):
            load(data)


@given(st.text("[]{}:,-?&*!|>'\"%@` \n\tab1.#~<", max_size=60))
def test_no_marks_of_yaml_make_the_reader_fail_otherwise(text: str) -> None:
    with contextlib.suppress(SourceError):
        json.dumps(load_yaml(text.encode()).value, allow_nan=False)


def test_all_that_is_wrong_with_a_json_text_is_listed_with_its_place() -> None:
    data = (
        b'{"twice": 1,\n "twice": 2,\n "nan": NaN,\n "huge": 1e999,\n "nul": "\\u0000",\n'
        b' "half": "\\ud800",\n "big": [99999999999999999999]}'
    )
    assert refused(load_json, data) == [
        ("duplicate_key", "/twice", 2),
        ("not_a_number", "/nan", 3),
        ("not_a_number", "/huge", 4),
        ("nul", "/nul", 5),
        ("lone_surrogate", "/half", 6),
        ("integer_range", "/big/0", 7),
    ]


def test_what_is_said_of_a_half_character_in_a_key_can_itself_be_sent() -> None:
    with pytest.raises(SourceError) as caught:
        load_json(b'{"\\ud800": {"\\ud800": NaN, "\\ud800": 1}}')
    assert {"lone_surrogate", "duplicate_key"} <= {p.code for p in caught.value.problems}
    for problem in caught.value.problems:
        json.dumps(problem.as_json(), ensure_ascii=False).encode()


def test_all_that_is_wrong_with_a_yaml_text_is_listed_with_its_place() -> None:
    data = (
        b"anchor: &a [1]\nalias: *a\ntag: !!str 1\n<<: {x: 1}\ntag: 2\ninf: .inf\n"
        b'big: 99999999999999999999\nnul: "\\0"\n'
    )
    assert refused(load_yaml, data) == [
        ("anchor", "/anchor", 1),
        ("alias", "/alias", 2),
        ("tag", "/tag", 3),
        ("merge_key", "", 4),
        ("duplicate_key", "/tag", 5),
        ("not_a_number", "/inf", 6),
        ("integer_range", "/big", 7),
        ("nul", "/nul", 8),
    ]


def test_words_mean_what_yaml_1_2_says() -> None:
    text = (
        b"on: on\nno: no\nday: 2024-01-01\ntime: 12:30\nunder: 1_000\nhex: 0x1F\noctal: 0o17\n"
        b"zeros: 010\nfloat: 1.\nnull_: ~\nempty:\nquoted: '1'\nyes: true\n1: one\n"
    )
    assert load_yaml(text).value == {
        "on": "on",
        "no": "no",
        "day": "2024-01-01",
        "time": "12:30",
        "under": "1_000",
        "hex": 31,
        "octal": 15,
        "zeros": 10,
        "float": 1.0,
        "null_": None,
        "empty": None,
        "quoted": "1",
        "yes": True,
        "1": "one",
    }


@pytest.mark.parametrize("load", [load_json, load_yaml])
def test_integers_are_exact_to_64_bits(load: Any) -> None:
    for number in (2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1):
        assert load(f'{{"n": {number}}}'.encode()).value == {"n": number}
    for number in (2**64, -(2**63) - 1, 10**4000, 10**5000):
        digits = "1" + "0" * 4999 if number == 10**5000 else str(number)
        assert codes(load, f'{{"n": {digits}}}'.encode()) == {"integer_range"}


@pytest.mark.parametrize("load", [load_json, load_yaml, parse_json_body])
def test_a_text_over_one_mebibyte_is_refused_and_one_of_it_is_not(load: Any) -> None:
    load(b'"' + b"a" * (MAX_BYTES - 2) + b'"')
    assert codes(load, b'"' + b"a" * (MAX_BYTES - 1) + b'"') == {"too_large"}


@pytest.mark.parametrize("load", [load_json, load_yaml, parse_json_body])
def test_64_levels_are_read_and_65_are_refused(load: Any) -> None:
    load(b"[" * 64 + b"]" * 64)
    load(b'{"a":' * 64 + b"1" + b"}" * 64)
    assert codes(load, b"[" * 65 + b"]" * 65) == {"too_deep"}
    assert codes(load, b'{"a":' * 65 + b"1" + b"}" * 65) == {"too_deep"}


def test_what_is_not_utf_8_names_the_line() -> None:
    assert refused(load_json, b'{\n"a": "\xff"}') == [("encoding", "", 2)]


@pytest.mark.parametrize(
    "bomb",
    [
        b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]",
        b"a: &x [1]\nb: [" + b"*x," * 300_000 + b"]",
        b"[" * 1_000_000,
        b"- " * 500_000,
        b"{a: " * 200_000,
        b"? " * 500_000,
        b"&a " * 300_000,
        b"!!a" * 300_000,
    ],
)
def test_a_yaml_bomb_is_refused_at_once(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few events of the parser, whatever is still to come; the clock is a coarse second
    look, for what the parser does between two of them."""
    seen = 0

    def counted(text: str, **more: Any) -> Iterator[Any]:
        nonlocal seen
        for event in parse(text, **more):
            seen += 1
            yield event

    parse = yaml.parse
    monkeypatch.setattr(yaml, "parse", counted)
    began = time.process_time()
    refused(load_yaml, bomb)
    assert 0 < seen < 300
    assert time.process_time() - began < 1


def test_a_json_bomb_is_refused_at_once() -> None:
    for bomb in (b"[" * 1_000_000, b'{"a":' * 200_000, b'{"a":NaN' + b',"a":1' * 150_000 + b"}"):
        began = time.process_time()
        refused(load_json, bomb)
        assert time.process_time() - began < 2


def test_problems_stay_small_when_keys_are_huge() -> None:
    key = b"k" * 400_000
    with pytest.raises(SourceError) as caught:
        load_json(b'{"' + key + b'": NaN, "' + key + b'": NaN}')
    assert sum(len(p.pointer) + len(p.message) for p in caught.value.problems) < 10_000


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb:\n  - x\n  - c: 2\n", 4), ('{"a": 1,\n"b": ["x",\n\n {"c": 2}]}', 4)],
)
def test_every_pointer_has_its_line(text: str, line: int) -> None:
    loaded = load_yaml(text.encode())
    assert loaded.line("/b/1/c") == line
    assert loaded.line("") == 1
    assert loaded.line("/b/7") is None


@pytest.mark.parametrize(
    "text", ["", "  ", "{", "[1,]", "{a:1}", "[1 2]", "01", "[1]x", "'a'", '{"a" 1}', "tru", '"\t"']
)
def test_what_is_no_json_is_refused_with_a_line(text: str) -> None:
    assert [(code, line) for code, _, line in refused(load_json, text.encode())] == [("syntax", 1)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("# only a comment", "empty"),
        ("--- a\n--- b", "many_documents"),
        ("a: b: c", "syntax"),
        ("a:\n\t- 1", "syntax"),
        ("a: \x07", "syntax"),
        ("? [a]\n: 1", "bad_key"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "tag"),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused(text: str, code: str) -> None:
    assert codes(load_yaml, text.encode()) == {code}


def test_a_number_that_is_no_number_in_json_is_text_in_yaml_only_when_yaml_says_so() -> None:
    assert load_yaml(b"a: NaN").value == {"a": "NaN"}
    assert codes(load_yaml, b"a: .nan") == {"not_a_number"}
    assert math.isclose(load_yaml(b"a: 1e3").value["a"], 1000)
