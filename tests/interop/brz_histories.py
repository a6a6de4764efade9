"""Random histories as Breezy keeps them, made without a working tree: merges of every sort, ghosts, signatures,
renames, moves, links, deep trees, pages of a few entries, so that small trees have pages of pages."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import breezy
import breezy.bzr
from breezy.bzr import inventory
from breezy.bzr.chk_serializer import chk_bencode_serializer
from breezy.controldir import format_registry
from breezy.repository import Repository
from breezy.revision import NULL_REVISION, Revision
from breezy.transport import get_transport
from builders import bring
from memory_transport import MemoryTransport

from smartserver.records.model import Tip
from smartserver.records.segment import SegmentStream
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.insert import insert
from smartserver.vcs.bzr.plan import plan
from smartserver.vcs.bzr.repository import BrzRepository

KINDS = system_of(BrzRepository.vcs).kinds

ROOT = b"the-root-1"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Breezy's warnings on files that it leaves to the garbage collector to close."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def new_repository(path: str, format_name: str = "2a") -> Any:
    """Make a shared repository of Breezy's, at a path or URL."""
    if breezy.get_global_state() is None:
        breezy.initialize()
    transport = get_transport(path)
    transport.ensure_base()
    made = format_registry.make_controldir(format_name).initialize_on_transport(transport)
    return made.create_repository(shared=True)


def open_repository(path: str) -> Any:
    return Repository.open(path)


class Node(NamedTuple):
    """An entry of a tree; `revision` changed it last."""

    parent: bytes
    name: str
    kind: str
    content: bytes
    executable: bool
    revision: bytes


Tree = dict[bytes, Node]


class RandomHistory:
    """A history of `size` revisions in `repository`; `page`: the most bytes of a leaf."""

    def __init__(self, repository: Any, seed: int, size: int, *, page: int = 600, files: int = 40) -> None:
        self.repository = repository
        self.random = random.Random(seed)
        self.trees: dict[bytes, Tree] = {}
        self.parents: dict[bytes, tuple[bytes, ...]] = {}
        self.reach: dict[bytes, frozenset[bytes]] = {}
        self.tags: dict[str, bytes] = {}
        self._names = 0
        before = chk_bencode_serializer.maximum_size
        chk_bencode_serializer.maximum_size = page
        try:
            with quiet(), repository.lock_write():
                while len(self.parents) < size:
                    repository.start_write_group()
                    for _ in range(min(40, size - len(self.parents))):
                        self._grow(files)
                    repository.commit_write_group()
        finally:
            chk_bencode_serializer.maximum_size = before

    def ancestors(self, *heads: bytes) -> list[bytes]:
        """Return `heads` and their ancestors, without ghosts, parents first."""
        found = frozenset[bytes]().union(*[self.reach[head] for head in heads])
        return [revision for revision in self.parents if revision in found]

    def _grow(self, files: int) -> None:
        chance = self.random
        number = len(self.parents)
        here = list(self.parents)
        ghosts: list[bytes] = []
        if not here or chance.random() < 0.01:
            parents: list[bytes] = []
        else:
            recent = here[-12:]
            parents = [chance.choice(recent)]
            if chance.random() < 0.3:
                others = [each for each in recent if not self._related(each, parents[0])]
                parents += chance.sample(others, min(len(others), chance.choice((1, 1, 1, 2))))
        if chance.random() < 0.06:
            ghosts = [b"a-ghost@%d" % number]
        tree = self._merged(parents) if parents else {ROOT: Node(b"", "", "directory", b"", False, b"")}
        if not parents:
            for _ in range(files):
                self._add(tree)
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            self._change(tree)
        self.commit(b"joe@example.com-%d-%016x" % (number, chance.getrandbits(64)), parents, ghosts, tree)

    def _related(self, one: bytes, other: bytes) -> bool:
        return one in self.reach[other] or other in self.reach[one]

    def _merged(self, parents: Sequence[bytes]) -> Tree:
        tree = dict(self.trees[parents[0]])
        for other in parents[1:]:
            theirs = self.trees[other]
            for file_id, node in theirs.items():
                mine = tree.get(file_id)
                if mine is not None and mine.kind == node.kind and self.random.random() < 0.4:
                    tree[file_id] = mine._replace(content=node.content, executable=node.executable)
            for file_id, node in sorted(theirs.items()):
                above = tree.get(node.parent)
                taken = any(each.parent == node.parent and each.name == node.name for each in tree.values())
                if file_id not in tree and above is not None and above.kind == "directory" and not taken:
                    tree[file_id] = node
        return tree

    def _name(self) -> str:
        self._names += 1
        return f"{self.random.choice(('a', 'b', 'Z', 'ü', '日本'))}{self._names}{self.random.choice(('.py', '', '.c'))}"

    def _folders(self, tree: Tree) -> list[bytes]:
        return [file_id for file_id, node in tree.items() if node.kind == "directory"]

    def _add(self, tree: Tree) -> None:
        chance = self.random
        name = self._name()
        file_id = f"{name}-{chance.getrandbits(32):08x}".encode()
        kind = chance.choice(("file",) * 7 + ("directory", "symlink"))
        content = b""
        if kind == "file":
            lines = [b"line %d of %x\n" % (n, chance.getrandbits(12)) for n in range(chance.choice((0, 1, 30, 200)))]
            content = b"".join(lines) + chance.choice((b"", b"no end", b"\0\xff"))
        elif kind == "symlink":
            content = f"to/{self._name()}".encode()
        tree[file_id] = Node(chance.choice(self._folders(tree)), name, kind, content, False, b"")

    def _change(self, tree: Tree) -> None:
        chance = self.random
        file_id = chance.choice(sorted(tree))
        node = tree[file_id]
        what = chance.choice(("edit", "edit", "edit", "add", "move", "remove", "mode"))
        if what == "add" or file_id == ROOT:
            self._add(tree)
        elif what == "edit" and node.kind != "directory":
            content = node.content + b"edit %x" % chance.getrandbits(30)
            tree[file_id] = node._replace(content=content + (b"\n" if node.kind == "file" else b""))
        elif what == "mode" and node.kind == "file":
            tree[file_id] = node._replace(executable=not node.executable)
        elif what == "move":
            target = chance.choice(self._folders(tree))
            if not self._below(tree, target, file_id):
                tree[file_id] = node._replace(parent=target, name=self._name())
        elif what == "remove" and not any(each.parent == file_id for each in tree.values()):
            del tree[file_id]

    def _below(self, tree: Tree, folder: bytes, file_id: bytes) -> bool:
        while folder:
            if folder == file_id:
                return True
            folder = tree[folder].parent
        return False

    def commit(
        self, revision: bytes, parents: Sequence[bytes], ghosts: Sequence[bytes], tree: Tree, sha1: bytes | None = None
    ) -> None:
        """Add a revision with this tree, as Breezy's own commit would; `sha1`: a wrong one of its inventory."""
        chance = self.random
        repository = self.repository
        named = [*parents, *ghosts]
        reach = frozenset((revision,)).union(*[self.reach[parent] for parent in parents])
        before = [self.trees[parent] for parent in parents]
        for file_id, node in list(tree.items()):
            olds = [old[file_id] for old in before if file_id in old]
            heads = [
                each
                for each in dict.fromkeys([old.revision for old in olds])
                if not any(each != old.revision and each in self.reach[old.revision] for old in olds)
            ]
            same = [old for old in olds if old.revision in heads and old[:5] == node[:5]]
            if len(heads) == 1 and same:
                tree[file_id] = same[0]
                continue
            tree[file_id] = node._replace(revision=revision)
            keys = tuple([(file_id, head) for head in heads])
            text = node.content if node.kind == "file" else b""
            repository.texts.add_lines(
                (file_id, revision), keys, text.splitlines(True) if b"\r" not in text else [text]
            )
        basis = parents[0] if parents else NULL_REVISION
        delta = _delta(before[0] if before else {}, tree)
        made, _ = repository.add_inventory_by_delta(basis, delta, revision, named)
        properties = (
            {"branch-nick": "é", "bugs": "https://example.com/1 fixed\nand more"} if chance.random() < 0.3 else {}
        )
        # Breezy's own `add_revision` would see to the sha1.
        repository._add_revision(
            Revision(
                revision,
                parent_ids=named,
                committer="Jö <joe@example.com>",
                timestamp=1_700_000_000 + len(self.parents) + 0.125,
                timezone=chance.choice((0, 3600, -12600)),
                message=f"revision {len(self.parents)}\n\né",
                inventory_sha1=sha1 or made,
                properties=properties,
            ),
        )
        if chance.random() < 0.1:
            repository.add_signature_text(revision, b"-----BEGIN PSEUDO-SIGNED CONTENT-----\n" + revision + b"\n")
        self.parents[revision] = tuple(named)
        self.reach[revision] = reach
        self.trees[revision] = tree


def _delta(old: Tree, new: Tree) -> list[tuple[str | None, str | None, bytes, Any]]:
    rows: list[tuple[str | None, str | None, bytes, Any]] = []
    for file_id in old.keys() | new.keys():
        if old.get(file_id) != new.get(file_id):
            there = _path(old, file_id) if file_id in old else None
            here = _path(new, file_id) if file_id in new else None
            rows.append((there, here, file_id, _entry(file_id, new[file_id]) if file_id in new else None))
    return rows


def _path(tree: Tree, file_id: bytes) -> str:
    names: list[str] = []
    while file_id != ROOT:
        names.append(tree[file_id].name)
        file_id = tree[file_id].parent
    return "/".join(reversed(names))


def _entry(file_id: bytes, node: Node) -> Any:
    made = inventory.make_entry(node.kind, node.name, node.parent or None, file_id)
    made.revision = node.revision
    if node.kind == "file":
        made.text_sha1 = hashlib.sha1(node.content).hexdigest().encode()
        made.text_size = len(node.content)
        made.executable = node.executable
    elif node.kind == "symlink":
        made.symlink_target = node.content.decode()
    return made


class Served:
    """A repository of ours that Breezy's repositories push to and pull from, without a client or a link."""

    def __init__(self) -> None:
        self.repository = PackRepository(MemoryTransport(), "project")

    def push(self, local: Any, tips: Sequence[bytes], haves: Sequence[bytes] = ()) -> int:
        """Push `tips` to refs of their own, and return the number of sent revisions."""
        segments = list(plan(BrzRepository(local), tips, haves).segments())
        self.bring(segments, tips)
        return len(segments)

    def bring(self, segments: Sequence[bytes], tips: Sequence[bytes]) -> None:
        """Store segments, and move refs."""
        bring(self.repository, BrzRepository.vcs, segments, {tip: Tip(tip, b"1") for tip in tips})

    def segments(
        self, wanted: Sequence[bytes], haves: Sequence[bytes] = (), absent: Sequence[bytes] = ()
    ) -> list[bytes]:
        """Return the segments of a pull."""
        transaction = self.repository.begin()
        pulling = transaction.plan_pull(wanted, haves, absent)
        stream = SegmentStream(graph_first=False)
        body = transaction.open_body(pulling)
        while chunk := body.read(50_000):
            stream.feed(chunk)
        stream.finish()
        return list(stream.segments())

    def pull(self, local: Any, wanted: Sequence[bytes]) -> int:
        """Pull into a repository of Breezy's, and return the number of received revisions."""
        mine = BrzRepository(local)
        haves = mine.complete_haves((), 256)
        return insert(mine, self.segments(wanted, haves, mine.absent(haves))).revisions


def all_keys(repository: Any) -> dict[str, set[tuple[bytes, ...]]]:
    """Return the keys of all five stores."""
    with repository.lock_read():
        return {name: set(getattr(repository, name).keys()) for name in STORES}


STORES = ("revisions", "signatures", "inventories", "chk_bytes", "texts")


def contents(repository: Any, keys: Mapping[str, Iterable[tuple[bytes, ...]]]) -> dict[tuple[str, bytes], Any]:
    """Return parents and text of each key of each store."""
    found = {}
    with repository.lock_read():
        for name, wanted in keys.items():
            for each in getattr(repository, name).get_record_stream(wanted, "unordered", True):
                assert each.storage_kind != "absent", each.key
                found[name, b"\0".join(each.key)] = (each.parents, each.get_bytes_as("fulltext"))
    return found
