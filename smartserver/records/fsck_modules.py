"""What a `.gitmodules` says of submodules: git's configuration format, as far as it can be written in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final


class BadConfig(ValueError):
    """It is no configuration; what git does with it ends there."""


_SECTION: Final = re.compile(rb'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY: Final = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_BLANK: Final = re.compile(rb"(?:\s|[#;][^\n]*+)*+")
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b'"': b'"', b"\\": b"\\"}
_PIECE: Final = re.compile(rb'[ \t\r\x0b\x0c]+|[^\s"\\#;]+|\\.|["#;\\\n]', re.DOTALL)


def submodule_settings(text: bytes) -> Iterator[tuple[bytes, str, bytes]]:
    """The settings of each submodule: its name, the key in lower case, and the value (empty where it has none).

    Raises:
        BadConfig: it cannot be read any further.
    """
    text = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    at = 0
    name: bytes | None = None
    while True:
        blank = _BLANK.match(text, at)
        at = at if blank is None else blank.end()
        if at == len(text):
            return
        if text.startswith(b"[", at):
            section = _SECTION.match(text, at)
            if section is None:
                raise _bad(text, at)
            name, at = _submodule(section), section.end()
            continue
        key = _KEY.match(text, at)
        if key is None:
            raise _bad(text, at)
        at = key.end()
        value = b""
        if text.startswith(b"=", at):
            value, at = _value(text, at + 1)
        elif at < len(text) and not text.startswith(b"\n", at):
            raise _bad(text, at)
        if name is not None:
            yield name, key[1].decode().lower(), value


def _bad(text: bytes, at: int) -> BadConfig:
    return BadConfig(f"line {text.count(bytes((10,)), 0, at) + 1}")


def _submodule(section: re.Match[bytes]) -> bytes | None:
    """The submodule that a section is about; None where it is about something else."""
    title, name = section[1].lower(), section[2]
    if name is None:  # The older form: [submodule.name]
        return title.removeprefix(b"submodule.") if title.startswith(b"submodule.") else None
    return re.sub(rb"\\(.)", rb"\1", name) if title == b"submodule" else None


def _value(text: bytes, at: int) -> tuple[bytes, int]:
    """A value and where it ends: blanks around it go, quotes keep them."""
    pieces: list[bytes] = []
    blanks = b""
    quoted = False
    while at < len(text):
        piece = _PIECE.match(text, at)
        assert piece is not None  # It has a form for each byte.
        part, at = piece[0], piece.end()
        if part == b"\n":
            break
        if part in (b"#", b";") and not quoted:
            end = text.find(b"\n", at)
            at = len(text) if end < 0 else end + 1
            break
        if part.isspace() and not quoted:
            blanks += part if pieces else b""
            continue
        if part == b'"':
            quoted = not quoted
            part = b""
        elif part == b"\\\n":
            part = b""
        elif part.startswith(b"\\"):
            if part[1:] not in _ESCAPES:
                raise _bad(text, at)
            part = _ESCAPES[part[1:]]
        pieces.append(blanks + part)
        blanks = b""
    if quoted:
        raise _bad(text, at - 1)
    return b"".join(pieces), at
