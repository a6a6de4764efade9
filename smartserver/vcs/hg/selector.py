"""Encodes the selectors of `Repository.read` for named changesets, and the answers.

A selector is a byte (`h`: their history is sent; `n`: only their ids) and the names, joined with NUL. The answer has 20
bytes for each name. The selector `g` asks for the ids and parents of changesets that the wants reach and the haves do
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from smartserver.errors import Unsupported
from smartserver.vcs.hg.kinds import NODE_BYTES, NULL, Node

MAX_NAMES: Final = 4096
"""The most names in one selector."""

HISTORY: Final = b"h"
ONLY: Final = b"n"

GRAPH: Final = b"g"

BRANCH: Final = b"branch:"
"""The prefix of a name that denotes all heads of a branch. Mercurial makes no name with a colon. An old name that
begins with one of these three prefixes is found by its id alone."""

FRAGMENT: Final = b"fragment:"
"""The prefix of a name that is a branch if such a branch exists, else any name: the part after the # of a URL."""

BOOKMARK: Final = b"bookmark:"
"""The prefix of a name that is only looked up as a bookmark. A missing bookmark is not an error: the answer has the map
of bookmarks."""


class RevisionNames(NamedTuple):
    """The names in a selector. `is_all`: True if their history is wanted, too, including that of `BRANCH` names."""

    names: Sequence[bytes]
    is_all: bool = True


def encode(names: RevisionNames) -> bytes:
    """Encode the selector of some names."""
    return (HISTORY if names.is_all else ONLY) + b"\0".join(names.names)


def decode(selector: bytes) -> RevisionNames:
    """Decode the names in a selector."""
    form, rest = selector[:1], selector[1:]
    names = rest.split(b"\0", MAX_NAMES) if rest else []
    if form not in (HISTORY, ONLY) or len(names) > MAX_NAMES:
        raise Unsupported("a selector of another release", f"at most {MAX_NAMES} names of changesets")
    return RevisionNames(names, form == HISTORY)


def encode_found(found: Sequence[Node]) -> bytes:
    """Encode the answer: the node of each name, which is null for a branch."""
    return b"".join(found)


def decode_found(names: RevisionNames, said: bytes) -> dict[bytes, Node]:
    """Return the changeset of each name in an answer. Branches and missing bookmarks are left out."""
    nodes = [said[at : at + NODE_BYTES] for at in range(0, NODE_BYTES * len(names.names), NODE_BYTES)]
    of_names = zip(names.names, nodes, strict=False)
    return {name.removeprefix(FRAGMENT): node for name, node in of_names if node != NULL}
