"""The describer of Git's pkt-line: the first lines, each of which is four digits of its length and its text."""

from __future__ import annotations

import re

from netem.describe.base import register

LENGTH = re.compile(rb"[0-9a-f]{4}")
SPECIAL = {0: "flush", 1: "delimiter", 2: "response end"}
LINES = 3
"""The most lines shown. A list of refs has thousands."""


@register
def describe_pkt_line(content: bytes) -> str:
    """Return the first lines of a pkt-line message, as `want 1f0c... | done` or `flush`; empty if the message is not
    one."""
    said: list[str] = []
    at = 0
    while at < len(content) and len(said) <= LINES:
        head = content[at : at + 4]
        size = int(head, 16) if LENGTH.fullmatch(head) else 3
        if size == 3 or (size > 3 and at + size > len(content)):
            # A raw pack follows the lines of a push, and the kept bytes of a long message may end within a line.
            if not said:
                return ""
            said.append("...")
            break
        said.append(SPECIAL.get(size) or _text(content[at + 4 : at + size]))
        at += max(size, 4)
    if len(said) > LINES:
        said[LINES:] = ["..."]
    return " | ".join(said)


def _text(line: bytes) -> str:
    """Return the words of a line, with a space for each NUL, or the name of the side band that the line belongs to."""
    if line[:1] in (b"\x01", b"\x02", b"\x03"):
        return {1: "pack", 2: "progress", 3: "error"}[line[0]]
    return " ".join(line.decode("utf-8", "replace").replace("\0", " ").split())
