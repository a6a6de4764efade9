"""The refs of a repository read from its files, as gitrepository-layout(5) describes them.

Git takes 4 ms to start and say the same. Only what is plainly so is read here: for anything else git is to be asked, as
it is for a linked work tree, whose refs are in two folders, and for refs that are in no files (git's reftable format).
"""

from __future__ import annotations

import os
import re
from binascii import unhexlify
from collections.abc import Iterator
from typing import Final

from smartserver.records.model import RevisionId

MAX_ENTRIES = 100
"""Files and folders below `refs`. Git reads more of them sooner, its start included."""

_NAME: Final = rb"refs(?:/[0-9A-Za-z_+=,-](?:[.@]?[0-9A-Za-z_+=,-])*)+"
"""Names that are spelt alike on every file system, of those that git-check-ref-format(1) allows."""

_LOOSE: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n|ref: (%b)\n" % _NAME)
_PACKED: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (%b)" % _NAME)
_WHOLE_NAME: Final = re.compile(_NAME)


class Unclear(Exception):
    """Git is to be asked."""


def read_refs(folder: str, id_length: int) -> dict[bytes, RevisionId] | None:
    """Every ref and its tip, in the order of names; None where git is to be asked. `folder`: of a repository that keeps
    refs in files, all in this folder."""
    loose: dict[bytes, bytes] = {}
    links: dict[bytes, bytes] = {}
    place = os.fsencode(folder)
    try:
        for name in _files(place):
            found = _LOOSE.fullmatch(_content(place, name))
            if found is None:
                raise Unclear
            if found[2]:
                links[name] = found[2]
            else:
                loose[name] = found[1]
        # Git writes a ref here before it removes its file.
        refs = {**_packed(place), **loose}
        for name, target in links.items():
            if target not in refs or target in links:
                raise Unclear
            refs[name] = refs[target]
        tips = {name: unhexlify(refs[name]) for name in sorted(refs)}
    except (OSError, Unclear):
        return None
    return tips if all(len(tip) == id_length and any(tip) for tip in tips.values()) else None


def _files(place: bytes) -> Iterator[bytes]:
    """The names of the refs that have a file of their own."""
    folders = [b"refs"]
    count = 0
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(place, folder)) as entries:
            for entry in entries:
                name = folder + b"/" + entry.name
                count += 1
                if count > MAX_ENTRIES or entry.is_symlink() or not _is_plain(name):
                    raise Unclear
                if entry.is_dir():
                    folders.append(name)
                else:
                    yield name


def _is_plain(name: bytes) -> bool:
    return _WHOLE_NAME.fullmatch(name) is not None and b".lock/" not in name + b"/"


def _content(place: bytes, name: bytes) -> bytes:
    with open(os.path.join(place, name), "rb", 0) as file:
        return file.read()


def _packed(place: bytes) -> dict[bytes, bytes]:
    """The refs that are in one file together, each with its id."""
    try:
        lines = _content(place, b"packed-refs").split(b"\n")
    except FileNotFoundError:
        return {}
    if lines.pop():  # It is cut short.
        raise Unclear
    refs = {}
    for line in lines:
        if line[:1] in (b"^", b"#"):  # What the tag before peels to, or how the file was written.
            continue
        found = _PACKED.fullmatch(line)
        if found is None or b".lock/" in line + b"/":
            raise Unclear
        refs[found[2]] = found[1]
    return refs
