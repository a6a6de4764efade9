"""server.logfmt: what a name from outside cannot forge."""

from __future__ import annotations

import json

import pytest

from smartserver.server.logfmt import Field, logfmt


def test_fields_in_their_order() -> None:
    assert logfmt({"path": "team/a+b", "up": 12, "ms": 0.5, "verbs": ["A.b", "C.d"]}) == (
        "path=team/a+b up=12 ms=0.5 verbs=A.b,C.d"
    )


@pytest.mark.parametrize(
    "value", ["a b", 'a" outcome=done', "a\nrequest user=root", "\x1b[2J", "\u202e", "ä", "a=b", ""]
)
def test_other_characters_make_a_json_string(value: str) -> None:
    fields: dict[str, Field] = {"path": value, "outcome": "refused"}
    line = logfmt(fields)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line.removeprefix("path=").removesuffix(" outcome=refused")) == value
