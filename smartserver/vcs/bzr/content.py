"""`BzrContents` reads trees and revisions from the store, for `smartserver export`, `ls`, `cat` and `log`.

A name is looked up in one branch: the first that exists of the branch at the request's path, the branch at the
repository's own path, and `trunk`, else the only branch. It is, in Breezy's order, a number in the left-hand history, a
tag, a revision id, or another branch. The prefixes `revno:`, `tag:` and `revid:` select one of these.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from smartserver.errors import MissingRevision, NoSuchPart, shown
from smartserver.records.browse import ChangedPath, Header, Node, NodeType, message_of
from smartserver.records.content import RepositoryView, Text, whole
from smartserver.records.model import HERE, Key, RevisionId, Tip
from smartserver.vcs.bzr.kinds import INVENTORY, REVISION, TAGS, TEXT
from smartserver.vcs.bzr.left_hand import left_hand, number_in
from smartserver.vcs.bzr.pages import InternalNode, InventoryEntry, Leaf
from smartserver.vcs.bzr.revision import BrzRevision, read_inventory, read_revision
from smartserver.vcs.bzr.tree import BzrTree, differing_leaves, entry_of, page_of
from smartserver.vcs.patterns import compile_pattern

TRUNK: Final = b"trunk"
"""The branch that is used if no branch exists at the request's path or at the repository's own path."""

MAX_NAMED: Final = 10
"""The most branches that an error names."""

KEPT_BYTES: Final = 8 << 20
"""Bytes of pages after which all cached pages are dropped. Neighbours in history share nearly all pages."""

AUTHORS: Final = (b"authors", b"author")
"""The properties that name the authors of a revision, one in each line."""

_NUMBER: Final = re.compile("-?[0-9]{1,15}")
_SECONDS: Final = compile_pattern(rb"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")
_PREFIXED: Final = re.compile("(revno|tag|revid):(.*)", re.DOTALL)

_TYPES: Final = {"dir": NodeType.FOLDER, "symlink": NodeType.LINK, "tree": NodeType.SUBMODULE}


class BzrContents:
    """The `Contents` of a Breezy repository."""

    def __init__(self, stored: RepositoryView, branch: bytes) -> None:
        """`branch`: the branch in which names are looked up, if it exists."""
        self._stored = stored
        self._branch = branch
        self._kept: dict[Key, InternalNode | Leaf] = {}
        self._kept_bytes = 0

    def find(self, name: str) -> RevisionId:
        """Return the revision that a name denotes. An empty name denotes the tip of the branch."""
        refs = self._stored.refs()
        branch = next((ref for ref in (self._branch, HERE, TRUNK) if ref in refs), None)
        if branch is None and len(refs) == 1:
            (branch,) = refs
        prefixed = _PREFIXED.fullmatch(name)
        prefix, rest = ("", name) if prefixed is None else prefixed.groups()
        if branch is not None:
            tip = refs[branch][0]
            found = tip.id if not name else self._named(branch, tip, prefix, rest)
            if found:
                return found
        raw = rest.encode()
        if prefix in ("", "revid") and raw and self._stored.ordinal(raw) is not None:
            return raw
        if not prefix and raw in refs:
            return refs[raw][0].id
        unknown = f"unknown revision {name!r}: " if name else ""
        if branch is None:
            raise NoSuchPart(f"{unknown}{self._branches()}")
        raise NoSuchPart(f"{unknown}no number, tag or id in the branch {shown(branch)}, and no other branch")

    def _named(self, branch: bytes, tip: Tip, prefix: str, name: str) -> RevisionId:
        """Return the revision with a number or tag of a branch; empty if the branch has none."""
        tagged = self._stored.map(TAGS).get(branch + b"\0" + name.encode(), b"") if prefix in ("", "tag") else b""
        if prefix not in ("", "revno") or not _NUMBER.fullmatch(name):
            return tagged
        numbered = self._numbered(tip, int(name))
        if not numbered and not tagged:
            raise NoSuchPart(f"there is no revision {int(name)} in the left-hand history")
        return numbered or tagged

    def _numbered(self, tip: Tip, number: int) -> RevisionId:
        """Return the revision with a number in the left-hand history of a tip, or an empty string. A negative number
        counts from the tip."""
        ordinal = self._stored.ordinal(tip.id)
        if ordinal is None:
            raise MissingRevision(tip.id)
        line: Iterable[int] = left_hand(self._stored, ordinal)
        steps = -number - 1
        if number > 0:
            last = number_in(tip.attributes)
            if not last:
                line = list(line)
                last = len(line)
            steps = last - number
        found = next(itertools.islice(line, steps, None), None) if steps >= 0 else None
        return b"" if found is None else self._stored.revision(found)

    def _branches(self) -> str:
        """Return a message that asks for a branch and lists at most `MAX_NAMED` branches."""
        names = list(map(shown, sorted(self._stored.refs())))
        if not names:
            return "there is no branch yet"
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"give a branch, as URL/{names[0]}; there are {', '.join(names[:MAX_NAMED])}{more}"

    def nodes(self, revision: RevisionId, path: bytes, *, deep: bool) -> Iterator[Node]:
        """Yield the node at a path, and the nodes directly in it. With `deep`, yield all nodes below it."""
        tree = self._tree(revision)
        found = tree.walk(path) if deep else _shallow(tree, path)
        first = next(found, None)
        if first is None:
            raise NoSuchPart(f"nothing at {shown(path)} in {_text(revision)}")
        yield _node(*first)
        for place, entry in found:
            yield _node(place, entry)

    def text(self, node: Node) -> Text:
        """Return the text of a file, the target of a link, or the revision id of a referenced tree."""
        if node.place is None:
            return whole(node.value)
        found = self._stored.text(*node.place)
        if found is None:
            raise ValueError(f"the text {shown(node.place[1])} is missing")
        return found

    def size(self, node: Node) -> int:
        """Return the size of a node's text in bytes, without reading the text."""
        found = len(node.value) if node.place is None else self._stored.length(*node.place)
        if found is None:
            raise ValueError(f"the text of {shown(node.path)} is missing")
        return found

    def header(self, revision: RevisionId) -> Header:
        """Return the header of a revision."""
        said = self._revision(revision)
        message = message_of(_text(revision), said.message)
        if not _SECONDS.fullmatch(said.timestamp):
            raise ValueError(f"the time {said.timestamp[:40]!r} cannot be read")
        author = next((said.properties[name] for name in AUTHORS if name in said.properties), said.committer)
        return Header(
            _text(revision),
            list(map(_text, said.parents)),
            author.partition(b"\n")[0].decode("utf-8", "replace"),
            math.floor(float(said.timestamp)),
            said.timezone // 60,
            message.decode("utf-8", "replace"),
        )

    def state(self, revision: RevisionId, path: bytes) -> object:
        """Return the entry at a path. For a folder, return a hash of all entries below it, because the folder's own
        entry does not depend on them."""
        tree = self._tree(revision)
        top = tree.find(path)
        if top is None or top.kind != "dir":
            return top
        digest = hashlib.blake2b()
        for place, entry in tree.walk(path):
            digest.update(b"%b\n%b\n%b\n" % (place, entry.file_id, entry.revision))
        return digest.digest()

    def changes(self, revision: RevisionId) -> Iterator[ChangedPath]:
        """Yield the differences between a revision's tree and that of its first parent."""
        parents = self._revision(revision).parents
        first = parents[0] if parents and self._stored.ordinal(parents[0]) is not None else None
        mine, theirs = self._differing(revision, first)
        for path in sorted(mine.keys() | theirs.keys()):
            new, old = mine.get(path), theirs.get(path)
            if new is None or old is None:
                yield ChangedPath("A" if old is None else "D", path)
            elif _content(new) != _content(old):
                yield ChangedPath("M", path)

    def _differing(
        self, one: RevisionId, other: RevisionId | None
    ) -> tuple[dict[bytes, InventoryEntry], dict[bytes, InventoryEntry]]:
        """Return the entries of two trees at the paths where the trees may differ."""
        new = self._tree(one)
        if other is None:
            return {path: entry for path, entry in new.walk() if path}, {}
        old = self._tree(other)
        found: tuple[dict[bytes, bytes], dict[bytes, bytes]] = {}, {}
        for side, items in differing_leaves(self._stored.record, one, other):
            found[side].update(items)
        mine, theirs = dict[bytes, InventoryEntry](), dict[bytes, InventoryEntry]()
        folders = functools.cache(new.path_of), functools.cache(old.path_of)
        for file_id in {changed for changed, _ in found[0].items() ^ found[1].items()}:
            here, there = (
                entry_of(file_id, items[file_id]) if file_id in items else tree.entry(file_id)
                for items, tree in zip(found, (new, old), strict=True)
            )
            # All that is in a folder moves with it.
            moves = here is not None and there is not None and _place(here) != _place(there)
            for tree, entry, at, path_of in ((new, here, mine, folders[0]), (old, there, theirs, folders[1])):
                if entry is not None:
                    path = _path(entry, path_of)
                    at.update(tree.walk(path) if moves and entry.kind == "dir" else ((path, entry),))
        return mine, theirs

    def _revision(self, revision: RevisionId) -> BrzRevision:
        record = self._stored.record(REVISION, revision)
        if record is None:
            raise MissingRevision(revision)
        return read_revision(record.text)

    def _tree(self, revision: RevisionId) -> BzrTree:
        record = self._stored.record(INVENTORY, revision)
        if record is None:
            raise MissingRevision(revision)
        if self._kept_bytes > KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = 0
        return BzrTree(read_inventory(record.text), self._page, self._kept, self._stored.charge)

    def _page(self, key: Key) -> bytes:
        text = page_of(self._stored.record, key)
        self._kept_bytes += len(text)
        return text


def _shallow(tree: BzrTree, path: bytes) -> Iterator[tuple[bytes, InventoryEntry]]:
    """Yield the entry at a path and, if it is a folder, the entries directly in it."""
    top = tree.find(path)
    if top is None:
        return
    yield path, top
    for name, file_id in tree.children(top.file_id).items() if top.kind == "dir" else ():
        child = tree.entry(file_id)
        if child is None:
            raise ValueError(f"the entry of {file_id!r} is missing")
        yield path + b"/" + name if path else name, child


def _node(path: bytes, entry: InventoryEntry) -> Node:
    if entry.kind == "file":
        return Node(path, NodeType.EXECUTABLE if entry.executable else NodeType.FILE, (TEXT, entry.text_key))
    type_ = _TYPES[entry.kind]
    return Node(path, type_, None, b"" if type_ is NodeType.FOLDER else entry.target)


def _path(entry: InventoryEntry, path_of: Callable[[bytes], bytes | None]) -> bytes:
    """Return the path of an entry. `path_of`: returns the path of a folder, by its id."""
    if not entry.parent_id:
        return b""
    folder = path_of(entry.parent_id)
    if folder is None:
        raise ValueError(f"the folder of {entry.file_id!r} is missing")
    return folder + b"/" + entry.name if folder else entry.name


def _place(entry: InventoryEntry) -> tuple[bytes, bytes]:
    return entry.parent_id, entry.name


def _content(entry: InventoryEntry) -> object:
    """Return the part of an entry that does not depend on its path."""
    return entry.kind, entry.sha1, entry.executable, entry.target


def _text(revision: RevisionId) -> str:
    return revision.decode("utf-8", "backslashreplace")
