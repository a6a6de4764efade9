"""Git's pkt-lines (gitprotocol-common(5)): four hexadecimal digits with the length of the line, themselves included,
then the payload."""

from __future__ import annotations

from collections.abc import Callable, Iterator

FLUSH = b"0000"

MAX_LINE = 65520
"""The most bytes of a pkt-line, its length included (git's LARGE_PACKET_MAX)."""

Read = Callable[[int], bytes]
"""A function that reads the given number of bytes; fewer only at the end."""


class BadRequest(Exception):
    """A client sent something that git's protocol does not allow; the message gives the reason on one line."""


def line(payload: bytes) -> bytes:
    """Return a pkt-line with a payload."""
    return b"%04x%b" % (len(payload) + 4, payload)


def error_line(text: str) -> bytes:
    """Return a line that replaces an answer, and that a client shows as `fatal: remote error: ...`."""
    return line(b"ERR " + text.encode("utf-8", "backslashreplace")[: MAX_LINE - 8])


def band(number: int, payload: bytes) -> Iterator[bytes]:
    """Yield the lines with a payload in a band of `side-band-64k`: 1 is the answer, 2 is text for the user, 3 is an
    error."""
    most = MAX_LINE - 5
    for at in range(0, len(payload), most):
        yield line(b"%c%b" % (number, payload[at : at + most]))


def read_line(read: Read) -> bytes | None:
    """Return the payload of the next line; None if it is a flush.

    Raises:
        BadRequest: the line is invalid or cut off.
    """
    digits = read(4)
    try:
        size = int(digits, 16) if len(digits) == 4 and digits.isalnum() else -1
    except ValueError:
        size = -1
    if size == 0:
        return None
    if not 4 <= size <= MAX_LINE:
        raise BadRequest(f"expected the length of a pkt-line, got {digits!r}")
    payload = read(size - 4)
    if len(payload) != size - 4:
        raise BadRequest(f"a pkt-line of {size} bytes ends after {len(payload) + 4}")
    return payload


def read_lines(read: Read, most: int) -> list[bytes]:
    """Return the payloads of all lines before a flush. `most`: the most bytes of the lines together.

    Raises:
        BadRequest: the lines are too long, or cut off.
    """
    found: list[bytes] = []
    size = 0
    while (payload := read_line(read)) is not None:
        size += 4 + len(payload)  # An empty line takes memory, too.
        if size > most:
            raise BadRequest(f"more than {most} bytes of lines before a flush")
        found.append(payload)
    return found
