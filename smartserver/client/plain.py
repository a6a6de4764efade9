"""Makes text from a peer safe for a terminal. All text from a server must pass through this module before it is
shown."""

from __future__ import annotations


class _Blanks(dict[int, int]):
    """Code point -> the code point that replaces it. Missing entries are computed and not stored, because a peer could
    send a million different characters."""

    def __missing__(self, code: int) -> int:
        return code if chr(code).isprintable() else ord(" ")


_BLANKS = _Blanks({code: code if chr(code).isprintable() else ord(" ") for code in range(256)})


def plain(text: str) -> str:
    """Return the text on one line, with a blank for each character that could control a terminal."""
    return text if text.isprintable() else text.translate(_BLANKS)


def plain_lines(text: str) -> str:
    """Apply `plain` to each line of a text."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(plain, text.split("\n")))
