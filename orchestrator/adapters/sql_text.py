"""The text of a tool's statement, as far as it is looked at before it is sent.

The role is the fence. This look keeps out what would go round it, or round our limits, with rights
that every role has: functions that run a text as a statement, that change or read settings, that
sleep, lock, or reach the server. A statement is lexed as PostgreSQL lexes it, so that a name in
a text, a comment or a quoted name is taken for what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# What psycopg makes of the places, before the server lexes the statement.
_PLACE = re.compile(r"%\([^)]*\)[sbt]")
_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\r\n]*)
    | (?P<comment>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*+(?:'|\Z)  # goes on behind a line's end
        (?:(?:[ \t\f\v]|--[^\r\n]*+)*+[\r\n](?:\s|--[^\r\n]*+[\r\n])*+
           '(?:[^'\\]|''|\\.)*+(?:'|\Z))*+)
    | (?P<text>'(?:[^']|'')*+(?:'|\Z))
    | (?P<quoted>"(?:[^"]|"")*+(?:"|\Z))
    | (?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    | (?P<number>[0-9][0-9.]*|\$[0-9]+)
    | (?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_DENIED = re.compile(
    r"""
      (?:query|table|schema|database|cursor)_to_xml(?:schema|_and_xmlschema)?  # run a text
    | ts_stat | ts_rewrite | crosstab\w* | connectby | xpath_table
    | dblink\w* | postgres_fdw_\w* | http | http_\w+
    | lo_\w+ | loread | lowrite
    | set_config | current_setting
    | pg_(?!typeof\Z|column_size\Z|size_pretty\Z|size_bytes\Z)\w+
    """,
    re.VERBOSE,
)


def denied_call(text: str) -> str | None:
    """The first function that a statement may not call, as it is written; None: there is none."""
    for name in called(text):
        if _DENIED.fullmatch(name.lower()):
            return name
    return None


def called(text: str) -> Iterator[str]:
    """Names in call position: what stands right before an opening bracket, without its schema."""
    last = ""
    for kind, word in _tokens(_PLACE.sub("$1", text).replace("%%", "%")):
        if kind == "other" and word == "(" and last:
            yield last
        last = {"name": word, "quoted": word[1:-1]}.get(kind, "")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """What counts: no space, no comment; ``(kind, text)``."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:  # cannot be: the last alternative takes anything
            return
        kind, word = found.lastgroup or "other", found.group()
        at = found.end()
        if kind == "comment":
            at = _after_comment(text, at)
        elif kind == "dollar":
            end = text.find(word, at)
            at = len(text) if end < 0 else end + len(word)
            yield "text", word
        elif kind != "space":
            yield kind, word


def _after_comment(text: str, at: int) -> int:
    """Comments nest in PostgreSQL."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at
