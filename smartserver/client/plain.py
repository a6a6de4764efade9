"""Text that may be a peer's, before it reaches a terminal: everything shown of what a server says passes here."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text on one line, with a blank for whatever could command a terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)
