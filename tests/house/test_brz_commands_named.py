"""What hangs on which brz command runs is a row of one table: no other module of the adapter names a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import Source, parse, sources

from smartserver.plugins.breezy.commands import COMMANDS

ADAPTER = "smartserver/plugins/breezy"
TABLE = "smartserver.plugins.breezy.commands"

ARGUMENTS = {"bind", "branch", "revno", "tags"}
"""Commands that are called as something is that a command is given."""


def named(source: Source) -> Iterator[str]:
    """Each place that compares something with the name of a command, has that among several, or asks for it."""
    for node in ast.walk(source.tree):
        words: list[ast.expr] = []
        match node:
            case ast.Compare():
                words = [node.left, *node.comparators]
            case ast.Tuple() | ast.List() | ast.Set():
                words = node.elts
            case ast.Dict():
                words = [key for key in node.keys if key is not None]
            case ast.Call(func=ast.Name()):
                words = node.args
            case ast.MatchValue():
                words = [node.value]
        for word in words:
            if isinstance(word, ast.Constant) and word.value in COMMANDS.keys() - ARGUMENTS:
                yield f"{source.path}:{word.lineno}: {word.value}"


def test_one_table_names_commands() -> None:
    found = [line for source in sources(ADAPTER) if source.module != TABLE for line in named(source)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("is_running('merge', 'send')", 2),
        ("command.name == 'merge'", 1),
        ("command.name in ('merge', 'other')", 1),
        ("READS = ['merge']\nROWS = {'log': 1}", 2),
        ("match name:\n    case 'merge':\n        pass", 1),
        ("given('branch')\nCONFIG = 'config'\narguments.get('merge')", 0),
    ],
)
def test_the_check_itself(text: str, count: int) -> None:
    assert len(list(named(parse("smartserver/plugins/breezy/x.py", text)))) == count
