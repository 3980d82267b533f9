"""Plain JSON as YAML that ``yaml_text`` reads back as the same value."""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestrator.core.yaml_text import reads_as_text

_WIDTH = 100
# Controls, and what YAML 1.1 takes for a line break or a byte order mark: these last only escaped.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


class _Writer(yaml.SafeDumper):
    """Without anchors and aliases; texts of several lines as blocks; lists indented."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Never an anchor: the reader refuses them."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the library's
        """Lists stand below their key, one step in."""
        super().increase_indent(flow, False)  # noqa: FBT003 - the library's


def _text(writer: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None
    if _ESCAPED.search(value):
        style = '"'
    elif "\n" in value:
        style = "|"
    elif not reads_as_text(value):
        style = '"'
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Writer.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    """The value as YAML 1.2, keys in their order; ``load_yaml`` gives the same value again."""
    return yaml.dump(value, Dumper=_Writer, allow_unicode=True, sort_keys=False, width=_WIDTH)
