"""A describer is a function from the first bytes of a message to a few words, or `""` if it does not know the protocol.

The protocol of a message is not known: the describers are called in turn, and the first description is used. So a
describer recognises its protocol by the form of the bytes, and returns `""` if it is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable

Describer = Callable[[bytes], str]

MOST_SHOWN = 100
"""The most characters of a description."""

DESCRIBERS: list[Describer] = []


def register(describer: Describer) -> Describer:
    """Add a describer after the registered ones; for use as a decorator. A describer must accept bytes that are cut off
    anywhere."""
    if describer not in DESCRIBERS:
        DESCRIBERS.append(describer)
    return describer


def describe(content: bytes) -> str:
    """Describe a message in one line of printable characters; empty if no describer knows it, or it has no bytes.

    If a describer fails, its name and error are put before the description by another.
    """
    said: list[str] = []
    for describer in DESCRIBERS if content else ():
        try:
            words = _line(describer(content))
        except Exception as error:  # its author should see the error, and still the rest of the test's output
            said.append(_line(f"({getattr(describer, '__name__', describer)} failed: {error!r})"))
            continue
        if words:
            said.append(words)
            break
    return "  ".join(said)


def _line(words: str) -> str:
    line = "".join(c if c.isprintable() else "?" for c in words)
    return line if len(line) <= MOST_SHOWN else line[: MOST_SHOWN - 3] + "..."
