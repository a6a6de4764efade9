"""Text that may be a peer's, before it reaches a terminal: everything shown of what a server says passes here."""

from __future__ import annotations


class _Blanks(dict[int, int]):
    """The characters that others become, by number. Others are not kept: a peer could send a million of them."""

    def __missing__(self, code: int) -> int:
        return code if chr(code).isprintable() else ord(" ")


_BLANKS = _Blanks({code: code if chr(code).isprintable() else ord(" ") for code in range(256)})


def plain(text: str) -> str:
    """The text on one line, with a blank for whatever could command a terminal."""
    return text if text.isprintable() else text.translate(_BLANKS)


def plain_lines(text: str) -> str:
    """The same for each line of a text."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(plain, text.split("\n")))
