"""`--json`: what a command shows, as a JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping

import click
import msgspec

json_option = click.option("--json", "as_json", is_flag=True, help="A JSON object on each line.")


def text_of(name: bytes) -> str:
    """A name as text; bytes that are not UTF-8 as `\\xNN`."""
    return name.decode("utf-8", "backslashreplace")


def json_line(fields: Mapping[str, object]) -> str:
    """An object on a line of its own."""
    return msgspec.json.encode(fields).decode() + "\n"
