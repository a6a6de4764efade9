"""Reads the refs of a repository from its files, as gitrepository-layout(5) describes them.

Git takes 4 ms to start and list the same. Only plain cases are read here, and git must list all others. Among those are
a linked work tree, whose refs are in two folders, and refs that are not files (git's reftable format).
"""

from __future__ import annotations

import os
import re
from binascii import unhexlify
from collections.abc import Iterator
from typing import Final

from smartserver.records.model import RevisionId

MAX_ENTRIES = 100
"""The most files and folders below `refs` that are read. More of them are read faster by git, including its start."""

_NAME: Final = rb"refs(?:/[0-9A-Za-z_+=,-](?:[.@]?[0-9A-Za-z_+=,-])*)+"
"""Matches those names that git-check-ref-format(1) allows and every file system spells alike."""

_LOOSE: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n|ref: (%b)\n" % _NAME)
_PACKED: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (%b)" % _NAME)
_WHOLE_NAME: Final = re.compile(_NAME)


class Unclear(Exception):
    """The refs cannot be read here: only git can read them."""


def read_refs(folder: str, id_length: int) -> dict[bytes, RevisionId] | None:
    """Return every ref and its tip, in the order of names; None if only git can read them. `folder`: the folder of a
    repository whose refs are all in files there."""
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
        # Read last: git writes a ref to this file before it removes the ref's own file.
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
    """Yield the names of the refs that have their own files."""
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
    """Return the refs in the file `packed-refs`, each with its id in hex."""
    try:
        lines = _content(place, b"packed-refs").split(b"\n")
    except FileNotFoundError:
        return {}
    if lines.pop():  # The file is cut short.
        raise Unclear
    refs = {}
    for line in lines:
        if line[:1] in (b"^", b"#"):  # The target of the tag before, or a header.
            continue
        found = _PACKED.fullmatch(line)
        if found is None or b".lock/" in line + b"/":
            raise Unclear
        refs[found[2]] = found[1]
    return refs
