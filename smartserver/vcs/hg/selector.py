"""What a pull of named changesets asks (`Repository.read`), and how the server says what it found.

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
"""Begins a name that stands for all heads of a branch. No name of Mercurial's has a colon."""


FRAGMENT: Final = b"fragment:"
"""Begins a name that is a branch if there is one, else any name: that after the # of a URL."""


class Names(NamedTuple):
    """What is asked; `is_all`: with their history, `BRANCH` names included."""

    names: Sequence[bytes]
    is_all: bool = True


def encode(names: Names) -> bytes:
    """The selector of some names."""
    return (HISTORY if names.is_all else ONLY) + b"\0".join(names.names)


def decode(selector: bytes) -> Names:
    """What a selector asks.

    Raises:
        Unsupported: it is none of this release's.
    """
    form, rest = selector[:1], selector[1:]
    names = rest.split(b"\0") if rest else []
    if form not in (HISTORY, ONLY) or len(names) > MAX_NAMES:
        raise Unsupported("a selector of another release", "names of changesets")
    return Names(names, form == HISTORY)


def encode_found(found: Sequence[Node]) -> bytes:
    """What the names are, null for a branch."""
    return b"".join(found)


def decode_found(names: Names, said: bytes) -> dict[bytes, Node]:
    """What each name is; branches are left out."""
    nodes = [said[at : at + NODE_BYTES] for at in range(0, NODE_BYTES * len(names.names), NODE_BYTES)]
    of_names = zip(names.names, nodes, strict=False)
    return {name.removeprefix(FRAGMENT): node for name, node in of_names if node != NULL}
