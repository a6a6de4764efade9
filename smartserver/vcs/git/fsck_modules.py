"""Parses the submodules of a `.gitmodules` file: git's configuration format, without included files.

The text comes from a client. Every expression takes time in proportion to the bytes it reads, and no byte is read more
than a few times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from smartserver.records.charge import Charge, free
from smartserver.records.faults import CHARGE_EVERY
from smartserver.vcs.patterns import compile_pattern


class BadConfig(ValueError):
    """The text cannot be parsed as a configuration. The message has the line at which git stops."""


STEP_BYTES: Final = 256
"""Bytes of text that a regular expression reads in the time of one charged step."""

_BLANK: Final = b" \t\r"
"""The bytes that git treats as blanks in a line."""

_NO_FAULT: Final = compile_pattern(
    rb'(?:(?:\[submodule "(?:\.?[\w/+@ -]++)++\.?"\]'
    rb"|[ \t]*+(?:[#;][^\n]*+"
    rb"|path ?= ?(?!-)[\w./+@-]++"
    rb"|url ?= ?(?:https?://[A-Za-z0-9][A-Za-z0-9.-]*+(?::[0-9]++)?+/|(?:git|ssh)://|git@|(?:\.\./)++(?=\w))[\w.:/~+@-]*+"
    rb"|(?:branch|ignore|shallow|fetchRecurseSubmodules) ?= ?[\w./-]++"
    rb"|update ?= ?(?:checkout|rebase|merge|none))?+"
    rb")\r?+\n)*+"
)
"""Matches a whole file without quotes, escapes and faults, as nearly every file is."""

_SKIPPED: Final = compile_pattern(rb"(?:[ \t\r\n]++|[#;][^\n]*+)*+")
_SECTION: Final = compile_pattern(rb'\[([A-Za-z0-9.-]++)(?:[ \t]++"((?:[^"\\\n]++|\\[^\n])*+)")?+\]')
_KEY: Final = compile_pattern(rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+")
_ESCAPED: Final = compile_pattern(rb"\\(.)")

_EMPTY: Final = compile_pattern(rb'(?:[ \t\r]++|\\\n|"(?:\\\n)*+")*+')
"""Matches the bytes before a value."""
_VALUE: Final = compile_pattern(rb'(?:[^"\\#;\n]++|\\(?:[ntb"\\\n]|\Z)|"(?:[^"\\\n]++|\\[ntb"\\\n])*+")*+(?=[#;\n]|\Z)')
"""Matches a value up to a comment or the end of its line. At the end of the file, git ignores a backslash."""
_PIECE: Final = compile_pattern(rb'[^"\\]++|\\.?', re.DOTALL)
"""Matches a piece of a value without its quotes."""
_PIECES: Final = {
    b"\\n": b"\n",
    b"\\t": b"\t",
    b"\\b": b"\b",
    b'\\"': b'"',
    b"\\\\": b"\\",
    b"\\\n": b"",
    b"\\": b"",
}


def has_no_fault(text: bytes, charge: Charge = free) -> bool:
    """Return True if one expression shows that a file has no fault. If False, the file may still have none."""
    charge(len(text) // STEP_BYTES)
    return _NO_FAULT.fullmatch(text) is not None


def submodule_settings(text: bytes, charge: Charge = free) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield the settings of each submodule: its name, the key in lower case, and the value (empty if there is none).

    All settings of one section have the same name object. A step is charged for each section and setting, and for each
    `STEP_BYTES` of text.

    Raises:
        BadConfig: the rest of the text cannot be parsed.
    """
    charge(len(text) // STEP_BYTES)
    text = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    at = steps = 0
    name: bytes | None = None
    while True:
        skipped = _SKIPPED.match(text, at)
        at = at if skipped is None else skipped.end()
        steps += 1
        if steps == CHARGE_EVERY or at == len(text):
            charge(steps)
            steps = 0
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
    """Return the name of a section's submodule; None if the section is not of a submodule."""
    title, name = section[1].lower(), section[2]
    if name is None:  # The older form: [submodule.name]
        return title.removeprefix(b"submodule.") if title.startswith(b"submodule.") else None
    if title != b"submodule":
        return None
    return _ESCAPED.sub(rb"\1", name) if b"\\" in name else bytes(name)


def _value(text: bytes, at: int) -> tuple[bytes, int]:
    """Return a value and its end. Blanks around the value are dropped unless they are quoted."""
    empty = _EMPTY.match(text, at)
    begin = at if empty is None else empty.end()
    found = _VALUE.match(text, begin)
    if found is None:
        raise _bad(text, begin)
    # A comment is skipped together with the blanks before the next setting.
    value = found[0].rstrip(_BLANK)
    if b'"' in value or b"\\" in value:
        pieces = _PIECE.findall(value)
        value = b"".join(map(_PIECES.get, pieces, pieces))
    return value, found.end()
