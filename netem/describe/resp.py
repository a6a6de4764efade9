"""Redis (RESP 2 and 3): the commands of a request, or the kind of each reply."""

from __future__ import annotations

import re

from netem.describe.base import register

COMMAND = re.compile(rb"\*([1-9][0-9]{0,5})\r\n(?=\$)")
WORD = re.compile(rb"\$(-1|[0-9]{1,9})\r\n")
REPLY = re.compile(rb"(?:([+-][^\r\n]*)|([:,#_][^\r\n]*)|([*~>%])([0-9]+|-1))\r\n")
SHOWN = 3
"""Commands shown; a pipeline has thousands."""


@register
def describe_resp(content: bytes) -> str:
    """`GET user:1`, `GET user:1; GET user:2; ...`, `+OK`, `5 bytes`, `array of 3`."""
    if not COMMAND.match(content):
        return _reply(content)
    said: list[str] = []
    at = 0
    while len(said) <= SHOWN and (found := COMMAND.match(content, at)):
        words, at = _words(content, found.end(), int(found[1]))
        if not words:
            break
        said.append(" ".join(words))
    if len(said) > SHOWN:
        said[SHOWN:] = ["..."]
    return "; ".join(said)


def _words(content: bytes, at: int, count: int) -> tuple[list[str], int]:
    """The words of a command (of a reply: the items of an array), as far as they are there, and where they end."""
    words: list[str] = []
    for _ in range(count):
        found = WORD.match(content, at)
        if found is None:
            return words, len(content)
        size = max(0, int(found[1]))
        words.append(content[found.end() : found.end() + size].decode("utf-8", "replace"))
        at = found.end() + (size + 2 if found[1] != b"-1" else 0)
    return words, at


def _reply(content: bytes) -> str:
    found = WORD.match(content)
    if found is not None:
        return "nothing" if found[1] == b"-1" else f"{int(found[1])} bytes"
    found = REPLY.match(content)
    if found is None:
        return ""
    simple = found[1] or found[2]
    return simple.decode("utf-8", "replace") if simple else f"array of {int(found[4])}"
