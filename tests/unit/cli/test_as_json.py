"""smartserver.cli.as_json: lines that a program reads, and that do no harm to a terminal."""

from __future__ import annotations

import json

import pytest

from smartserver.cli.as_json import json_line


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a b", b'"a b"'),
        ("日本é😀", '"日本é😀"'.encode()),
        ('"\\\n\x1b', b'"\\"\\\\\\n\\u001b"'),
        ("\x7f\x80\x9b\x9f", b'"\\u007f\\u0080\\u009b\\u009f"'),
        ("\u200e\u202e\u2066\u2028\ufeff", b'"\\u200e\\u202e\\u2066\\u2028\\ufeff"'),
        ("\U000e0001", b'"\\udb40\\udc01"'),
    ],
)
def test_what_could_command_a_terminal_is_escaped(name: str, line: bytes) -> None:
    assert json_line({"path": name}) == b'{"path":' + line + b"}\n"
    assert json.loads(json_line({"path": name})) == {"path": name}
