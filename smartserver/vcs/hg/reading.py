"""Answers `Repository.read` of Mercurial repositories: finds changesets by name as `hg` does, and selects their
history.

A name is looked up in this order: `tip`, `null`, the number of a changeset in this repository, a whole id, a bookmark,
a tag in `.hgtags` of any head, a branch, the unique prefix of an id.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from smartserver.errors import NoSuchPart, shown
from smartserver.records.charge import Charge
from smartserver.records.content import ReadPlan, ReadScope, RepositoryView, as_graph
from smartserver.records.model import Key, RefValue
from smartserver.vcs.hg import markers
from smartserver.vcs.hg.format import changeset_manifest, lines_starting, read_line
from smartserver.vcs.hg.kinds import (
    BOOKMARKS,
    CHANGESET,
    EVOLUTION,
    FILE,
    MANIFEST,
    NODE_BYTES,
    NULL,
    OBSOLETE,
    YES,
    Node,
    file_key,
)
from smartserver.vcs.hg.selector import BOOKMARK, BRANCH, FRAGMENT, GRAPH, decode, encode_found

_HEX: Final = re.compile(rb"[0-9a-f]{1,40}")
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
"""Matches a number. Another form, such as `012`, is not a number for Mercurial."""
_TAG: Final = re.compile(rb"^([0-9a-f]{40}) (.+)$", re.MULTILINE)

TAGS: Final = b".hgtags"

PAGE: Final = 4 << 20
"""The most bytes of markers in one answer with a page of the map. The last marker may exceed this."""


def read(stored: RepositoryView, selector: bytes, question: ReadScope) -> ReadPlan:
    """Return the part that a selector names: changesets, with their history if that is wanted; a graph; or markers.

    Raises:
        NoSuchPart: a name is unknown.
        Unsupported: this release does not know the selector.
    """
    if selector == GRAPH:
        wants, haves = _stored(stored, question.wants), _stored(stored, question.haves)
        return ReadPlan(pieces=as_graph(stored.reached(wants, haves)))
    if selector.startswith(markers.WHOLE):
        table = stored.map(OBSOLETE)
        stored.charge(len(table))
        return ReadPlan(_page(table, selector.removeprefix(markers.WHOLE)))
    if selector.startswith(markers.MARKERS):
        known, names = markers.decode_selector(selector)
        plan = _named(stored, names) if names else ReadPlan(heads=question.wants)
        return plan._replace(said=plan.said + _markers(stored, known, (plan.heads or ()) if names else None))
    return _named(stored, selector)


def _named(stored: RepositoryView, selector: bytes) -> ReadPlan:
    """Return the changesets of names, with their history if that is wanted."""
    asked = decode(selector)
    found, heads = _find(stored, asked.names)
    return ReadPlan(encode_found(found), heads=heads if asked.is_all else None)


def _markers(stored: RepositoryView, known: markers.KnownVersion, heads: Sequence[Node] | None) -> bytes:
    """Return the obsolescence markers that were added since a version. With `heads`, return only markers that are
    relevant to those heads."""
    if stored.setting(EVOLUTION) != YES:
        return b""
    chosen = stored.changed(OBSOLETE, known)
    table = stored.map(OBSOLETE)
    stored.charge(len(table))
    if heads is not None and (chosen is None or chosen):
        wanted = set(stored.reached(_stored(stored, heads), []))
        matter = markers.relevant(dict(table.items()), lambda node: stored.ordinal(node) in wanted)
        chosen = matter if chosen is None else matter.intersection(chosen)
    return b"".join(table.values() if chosen is None else [table[key] for key in sorted(chosen)])


def _page(table: Mapping[bytes, bytes], after: bytes) -> bytes:
    """Encode a page of the entries after a key, with a flag that is True if no more follow."""
    entries: dict[bytes, bytes] = {}
    size = 0
    for key, value in table.items():
        if key > after:
            if size >= PAGE:
                return msgspec.msgpack.encode((entries, False))
            entries[key] = value
            size += len(key) + len(value)
    return msgspec.msgpack.encode((entries, True))


def _find(stored: RepositoryView, names: Sequence[bytes]) -> tuple[list[Node], list[Node]]:
    """Return the changeset of each name, null for a branch; and all heads that the names denote."""
    finder = Finder(stored, names)
    found: dict[bytes, Node] = {}
    heads: dict[Node, None] = {}
    for name in dict.fromkeys(names):
        prefix = next((start for start in (BRANCH, FRAGMENT) if name.startswith(start)), b"")
        plain = name.removeprefix(prefix)
        value = None if plain == name else stored.refs().get(plain)
        if value is not None:
            heads.update(dict.fromkeys(tip.id for tip in value))
            found[name] = NULL
        elif name.startswith(BOOKMARK):
            found[name] = finder.bookmark(name.removeprefix(BOOKMARK)) or NULL
        elif name.startswith(BRANCH):
            raise NoSuchPart(f"unknown branch '{shown(plain)}'")
        else:
            found[name] = finder.find(plain)
        heads[found[name]] = None
    heads.pop(NULL, None)
    return [found[name] for name in names], list(heads)


def _stored(stored: RepositoryView, nodes: Sequence[Node]) -> list[int]:
    found = [stored.ordinal(node) for node in nodes]
    return [ordinal for ordinal in found if ordinal is not None]


class _TagHistory(NamedTuple):
    """The node of a tag in `.hgtags` of some heads, and the earlier nodes of the tag."""

    node: Node
    history: Counter[Node]
    """The number of lines that name each earlier node."""


class Finder:
    """Finds changesets by their names. Data that is read for one name is reused for the next names."""

    def __init__(self, stored: RepositoryView, names: Sequence[bytes]) -> None:
        """`names`: all names that will be looked up. One walk looks up all names that may be the prefix of an id."""
        self._stored = stored
        self._names = names
        self._begun: dict[bytes, list[Node]] | None = None
        """For each name that may be the prefix of an id, at most two ids that begin with it."""
        self._tags: dict[bytes, Node] | None = None

    def find(self, name: bytes) -> Node:
        """Return the changeset of a name; null for `null`, and for `tip` of an empty repository."""
        stored = self._stored
        if name == b"tip":
            return stored.revision(self._count - 1) if self._count else NULL
        if name == b"null" or name == NULL.hex().encode():
            return NULL
        number = int(name) if _NUMBER.fullmatch(name) else self._count
        if -self._count <= number < self._count:
            return stored.revision(number % self._count)
        whole = _whole(name)
        if whole is not None and stored.ordinal(whole) is not None:
            return whole
        found = self.bookmark(name)
        if found is not None:
            return found
        found = self.tags().get(name) or self._branch(name) or self._prefix(name)
        if found is None or stored.ordinal(found) is None:
            raise NoSuchPart(f"unknown revision '{shown(name)}'")
        return found

    def bookmark(self, name: bytes) -> Node | None:
        """Return the changeset of a bookmark; null if the bookmark is before the first changeset, None if it does not
        exist."""
        found = self._stored.map(BOOKMARKS).get(name)
        if found is not None and found != NULL and self._stored.ordinal(found) is None:
            raise NoSuchPart(f"unknown revision '{shown(name)}'")
        return found

    def _ordinals(self) -> Iterator[int]:
        stored = self._stored
        for value in stored.refs().values():
            for tip in value:
                ordinal = stored.ordinal(tip.id)
                if ordinal is not None:
                    yield ordinal

    @functools.cached_property
    def _count(self) -> int:
        return max(self._ordinals(), default=-1) + 1

    def _branch(self, name: bytes) -> Node | None:
        value = self._stored.refs().get(name)
        return None if value is None else newest_open(self._stored, value)

    def _prefix(self, name: bytes) -> Node | None:
        if self._begun is None:
            self._begun = self._scan()
        found = self._begun.get(name, [])
        if len(found) > 1:
            raise NoSuchPart(f"ambiguous identifier '{name.decode()}'")
        return found[0] if found else None

    def _scan(self) -> dict[bytes, list[Node]]:
        """Walk over all changesets once, and return up to two ids that begin with each name."""
        begun: dict[bytes, list[Node]] = {name: [] for name in self._names if _HEX.fullmatch(name)}
        lengths = sorted({len(name) for name in begun})
        for ordinal in range(self._count):
            node = self._stored.revision(ordinal)
            self._stored.charge(len(lengths))
            digits = node.hex().encode()
            for length in lengths:
                found = begun.get(digits[:length])
                if found is not None and len(found) < 2:
                    found.append(node)
        return begun

    def tags(self) -> dict[bytes, Node]:
        """Return the tags in `.hgtags` of all heads, joined as in Mercurial."""
        if self._tags is None:
            joined: dict[bytes, _TagHistory] = {}
            stored, seen = self._stored, set[Key]()
            for ordinal in sorted(set(self._ordinals())):
                key = self._hgtags(ordinal)
                found = None if key is None or key in seen else stored.record(FILE, key)
                if found is not None:
                    seen.add(found.key)
                    stored.charge(found.text.count(b"\n"))
                    _join(joined, _read_tags(found.text), stored.charge)
            self._tags = {name: tag.node for name, tag in joined.items() if tag.node != NULL}
        return self._tags

    def _hgtags(self, ordinal: int) -> Key | None:
        """Return the key of the version of `.hgtags` in a changeset, or None."""
        stored = self._stored
        changeset = stored.record(CHANGESET, stored.revision(ordinal))
        manifest = None if changeset is None else stored.record(MANIFEST, changeset_manifest(changeset.text))
        if manifest is None:
            return None
        line = lines_starting(manifest.text, TAGS + b"\0")
        return file_key(TAGS, read_line(line[:-1]).node) if line else None


def newest_open(stored: RepositoryView, value: RefValue) -> Node:
    """Return the newest head of a branch that does not close the branch. If all heads close it, return the newest of
    all."""
    return max(value, key=lambda tip: (not tip.closed, stored.ordinal(tip.id) or 0)).id


def _whole(name: bytes) -> Node | None:
    return bytes.fromhex(name.decode()) if len(name) == 2 * NODE_BYTES and _HEX.fullmatch(name) else None


def _read_tags(text: bytes) -> dict[bytes, _TagHistory]:
    found: dict[bytes, _TagHistory] = {}
    for match in _TAG.finditer(text):
        node, name = bytes.fromhex(match[1].decode()), match[2].strip()
        before = found.get(name)
        history = Counter[Node]() if before is None else before.history
        if before is not None:
            history[before.node] += 1
        found[name] = _TagHistory(node, history)
    return found


def _join(joined: dict[bytes, _TagHistory], tags: Mapping[bytes, _TagHistory], charge: Charge) -> None:
    """Merge a head's tags into those of earlier heads, as Mercurial does: if both heads have a tag, the node that
    supersedes the other is used."""
    for name, (node, history) in tags.items():
        other = joined.get(name)
        charge(1 + (len(other.history) if other is not None else 0))
        if other is None:
            joined[name] = _TagHistory(node, history)
            continue
        is_older = other.node != node and node in other.history
        if is_older and (other.node not in history or other.history.total() > history.total()):
            node = other.node
        dict.update(other.history, history)
        joined[name] = _TagHistory(node, other.history)
