"""`--json`: print the output of a command as one JSON object on each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import click
import msgspec

json_option = click.option("--json", "as_json", is_flag=True, help="A JSON object on each line.")


def text_of(name: bytes) -> str:
    """Return a name as text, with bytes that are not UTF-8 as `\\xNN`."""
    return name.decode("utf-8", "backslashreplace")


def json_line(fields: Mapping[str, object]) -> bytes:
    """Return an object as one line of JSON in UTF-8. Characters that could control a terminal, or change the order of
    its text, are escaped."""
    text = msgspec.json.encode(fields).decode()
    if not text.isprintable():
        text = "".join([each if each.isprintable() else _escaped(each) for each in text])
    return text.encode() + b"\n"


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join([f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)])


def write_json(objects: Iterable[Mapping[str, object]]) -> None:
    """Write each object to standard output."""
    sys.stdout.buffer.writelines(map(json_line, objects))
