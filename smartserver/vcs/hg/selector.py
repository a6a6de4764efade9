"""The selectors of `Repository.read` for named changesets, and the encoding of the answer.

A selector is a byte (`h`: their history is sent; `n`: only what they are) and the names, joined with NUL. The answer is
20 bytes for each. The selector `g` asks for the ids and parents of what the wants reach and the haves do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from smartserver.errors import Unsupported
from smartserver.vcs.hg.kinds import NODE_BYTES, NULL, Node

MAX_NAMES: Final = 4096
"""Names in one selector."""

HISTORY: Final = b"h"
ONLY: Final = b"n"

GRAPH: Final = b"g"

BRANCH: Final = b"branch:"
"""Begins a name that stands for all heads of a branch. Mercurial makes no name with a colon; an old one that begins
with one of these three words is found by its id alone."""

FRAGMENT: Final = b"fragment:"
"""Begins a name that is a branch if there is one, else any name: that after the # of a URL."""

BOOKMARK: Final = b"bookmark:"
"""Begins a name that is a bookmark alone. One that is not there is no error: the answer has the map of bookmarks."""


class RevisionNames(NamedTuple):
    """The names of a selector; `is_all`: with their history, `BRANCH` names included."""

    names: Sequence[bytes]
    is_all: bool = True


def encode(names: RevisionNames) -> bytes:
    """The selector of some names."""
    return (HISTORY if names.is_all else ONLY) + b"\0".join(names.names)


def decode(selector: bytes) -> RevisionNames:
    """The names in a selector."""
    form, rest = selector[:1], selector[1:]
    names = rest.split(b"\0", MAX_NAMES) if rest else []
    if form not in (HISTORY, ONLY) or len(names) > MAX_NAMES:
        raise Unsupported("a selector of another release", "names of changesets")
    return RevisionNames(names, form == HISTORY)


def encode_found(found: Sequence[Node]) -> bytes:
    """The changesets of the names, null for a branch."""
    return b"".join(found)


def decode_found(names: RevisionNames, said: bytes) -> dict[bytes, Node]:
    """The changeset of each name; branches are left out."""
    nodes = [said[at : at + NODE_BYTES] for at in range(0, NODE_BYTES * len(names.names), NODE_BYTES)]
    of_names = zip(names.names, nodes, strict=False)
    return {name.removeprefix(FRAGMENT): node for name, node in of_names if node != NULL}
