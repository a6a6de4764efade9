"""A describer is a function from the first bytes of a message to a few words, or none if it does not know them.

Nobody says which protocol is spoken: the describers are asked in turn, and the first that knows the bytes is believed.
So a describer knows its own by their form, and says nothing where it is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable

Describer = Callable[[bytes], str]

MOST_SHOWN = 100
"""Characters of a description."""

DESCRIBERS: list[Describer] = []


def register(describer: Describer) -> Describer:
    """Ask this one too, after those there are; for use as a decorator. It must bear bytes that are cut off anywhere."""
    if describer not in DESCRIBERS:
        DESCRIBERS.append(describer)
    return describer


def describe(content: bytes) -> str:
    """Describe a message in one line of printable characters; empty when no describer knows it, or it is empty.

    A describer that fails is named there with its error, before what another one says.
    """
    said: list[str] = []
    for describer in DESCRIBERS if content else ():
        try:
            words = _line(describer(content))
        except Exception as error:  # its author is to see it, and the rest of what his test tells him
            said.append(_line(f"({getattr(describer, '__name__', describer)} failed: {error!r})"))
            continue
        if words:
            said.append(words)
            break
    return "  ".join(said)


def _line(words: str) -> str:
    line = "".join(c if c.isprintable() else "?" for c in words)
    return line if len(line) <= MOST_SHOWN else line[: MOST_SHOWN - 3] + "..."
