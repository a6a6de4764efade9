"""Small real git histories in memory, as segments, and the pushes that bring them; git is not run."""

from __future__ import annotations

import copy
import copyreg
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self, TypeVar

from smartserver.errors import DivergedBranches
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.content import Text
from smartserver.records.model import GraphNode, Kind, Parent, Record, Tip
from smartserver.records.segment import encode_graph
from smartserver.records.system import MapType, System, register, system_of
from smartserver.store.commit import CommitOutcome
from smartserver.store.index import record_digest
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.stored_records import Location
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload
from smartserver.vcs.git.format import BLOB, COMMIT, TAG, TREE
from smartserver.vcs.git.system import git_key
from transports.base import Capability, Transport
from transports.decorators.passing import PassingTransport

GIT = "git sha1"
KINDS = (Kind("object", "git-sha1", True),)
SETTINGS = {"HEAD": b"refs/heads/main"}
MAIN = b"refs/heads/main"

SILENT = "another 1"
"""A system that declares nothing about its records, and whose refs may have any names."""


MAPS = {
    "tags": MapType("ids", of_refs=True),
    "config": MapType("opaque", of_refs=True),
    "notes": MapType("opaque"),
    "signatures": MapType("opaque"),
}
"""The maps of the systems of these tests."""

TEXTS = (Kind("text", "blake2b-128", True), Kind("signature", "blake2b-128", False))
"""The kinds of a system whose keys prove nothing about a text."""


class _Silent(System):
    name = SILENT
    kinds = KINDS
    maps = MAPS


class _Texts(System):
    name = "texts"
    kinds = TEXTS


register(_Silent(), _Texts())

system_of(GIT).maps = MAPS  # Of its own git has none.

Files = Mapping[str, bytes]
Made = TypeVar("Made")


for lock in (threading.Lock, threading.RLock):  # A copy of a storage has locks of its own.
    copyreg.pickle(type(lock()), lambda _, new=lock: (new, ()))  # type: ignore[misc]


def ancestors(tips: Iterable[bytes], parents: Mapping[bytes, Iterable[bytes]]) -> set[bytes]:
    """Return the members of `tips` whose parents are known, and their known ancestors."""
    found: set[bytes] = set()
    todo = list(tips)
    while todo:
        revision = todo.pop()
        if revision in parents and revision not in found:
            found.add(revision)
            todo += parents[revision]
    return found


def request_id() -> bytes:
    """Return a request id that is new each time, in every process."""
    return os.urandom(16)


class Repeatable:
    """Random bytes that are the same in each run, and never twice the same within a run."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = itertools.count()

    def __call__(self, size: int) -> bytes:
        return hashlib.shake_128(b"%d/%d" % (self._seed, next(self._count))).digest(size)


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Far(PassingTransport):
    """A store that behaves as behind a link: its files cannot be read once their names are deleted."""

    def __init__(self, inner: Transport, *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.capabilities = Capability.ROUND_TRIPS


class Stepwise(PassingTransport):
    """A store that calls `before` before each call, and each step of a `perform` is such a call."""

    def before(self, call: str, path: str) -> None:
        """Called before each call; `path` is relative to the outermost transport."""

    def around(self, call: str, path: str, do: Callable[[], Made]) -> Made:
        """Make a call."""
        self.before(call, path)
        return do()

    def wrap(self, inner: Transport, prefix: str) -> Self:
        made = copy.copy(self)
        PassingTransport.__init__(made, inner, prefix=prefix)
        made.__dict__["before"] = self.before
        return made


def _made_by_around(call: str) -> Callable[..., object]:
    def make(self: Stepwise, *paths: str) -> object:
        return self.around(call, self.full(paths[-1]), lambda: getattr(self.inner, call)(*paths))

    return make


for _call in (
    "get", "open_read", "create", "rename", "link", "delete", "make_directory", "remove_directory", "list_directory",
    "stat", "sync_directory",
):  # fmt: skip
    setattr(Stepwise, _call, _made_by_around(_call))


class History:
    """Commits with their trees and blobs, each with the records that it introduces."""

    def __init__(self) -> None:
        self.objects: dict[bytes, Record] = {}
        self.parents: dict[bytes, tuple[bytes, ...]] = {}
        """Parents by commit or tag, in the order in which they were made: parents first."""
        self.introduced: dict[bytes, list[tuple[bytes, bytes]]] = {}
        """By revision: (key, path) of the records that no parent reaches; the revision's own first."""
        self._reach: dict[bytes, frozenset[bytes]] = {}
        self._paths: dict[bytes, dict[bytes, bytes]] = {}
        self._writer = SegmentWriter(KINDS, bulk=False, texts=lambda _kind, key: self.objects[key].text)
        self._made: dict[bytes, bytes] = {}

    def add(self, meta: bytes, text: bytes) -> bytes:
        """Add an object, and return its id."""
        key = git_key("git-sha1", meta, text)
        self.objects[key] = Record(0, key, meta, text)
        return key

    def commit(self, files: Files, parents: Sequence[bytes] = (), message: str = "") -> bytes:
        """Add a commit with exactly these files, and return its id."""
        paths: dict[bytes, bytes] = {}
        tree = self._tree({name.encode(): text for name, text in files.items()}, b"", paths)
        lines = [b"tree %b\n" % tree.hex().encode()]
        lines += [b"parent %b\n" % parent.hex().encode() for parent in parents]
        lines += [b"author A <a@example.org> 1800000000 +0000\n", b"committer A <a@example.org> 1800000000 +0000\n"]
        key = self.add(COMMIT, b"".join(lines) + b"\n" + (message or f"commit {len(self.parents)}").encode() + b"\n")
        return self._revision(key, tuple(parents), paths)

    def tag(self, target: bytes, name: str = "v1") -> bytes:
        """Add an annotated tag; with the tag of a tree or blob comes everything that its target needs."""
        meta = self.objects[target].meta
        kind = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}[meta]
        text = b"object %b\ntype %b\ntag %b\n\nA tag.\n" % (target.hex().encode(), kind, name.encode())
        key = self.add(TAG, text)
        if meta in (COMMIT, TAG):
            return self._revision(key, (target,), {})
        return self._revision(key, (), dict.fromkeys(self.closure(target), b""))

    def bare(self, target: bytes) -> bytes:
        """Add a tree or blob as a revision of its own."""
        return self._revision(target, (), dict.fromkeys(self.closure(target), b""))

    def closure(self, key: bytes) -> list[bytes]:
        """Return a tree or blob and everything in it."""
        found = [key]
        record = self.objects[key]
        if record.meta == TREE:
            at = 0
            while at < len(record.text):
                at = record.text.index(b"\0", at) + 21
                found += self.closure(record.text[at - 20 : at])
        return found

    def line(self, count: int, parent: bytes | None = None, name: str = "file") -> list[bytes]:
        """Add commits in a row, each changing a line of one of several files."""
        made: list[bytes] = []
        for number in range(count):
            before = self.files(parent) if parent is not None else {"README": b"a project\n"}
            lines = [f"{name} {line}, as it was first\n" for line in range(30)]
            lines[number % 30] = f"changed by {name} {number}\n"
            files = {**before, f"src/{name}.txt": "".join(lines).encode() + b"%d\n" % number}
            parent = self.commit(files, () if parent is None else (parent,), f"{name} {number}")
            made.append(parent)
        return made

    def nested(self, levels: int, width: int, *, empty: bool = False) -> bytes:
        """Add a commit whose tree has `levels` levels of `width` times the same folder: few objects, very many paths.
        The lowest folders have a file, or nothing (`empty`)."""
        blob = self.add(BLOB, b"x\n")
        tree = self.add(TREE, b"" if empty else b"100644 file\0" + blob)
        paths = {b"/0": tree} if empty else {b"file": blob, b"/0": tree}
        for level in range(1, levels + 1):
            tree = self.add(TREE, b"".join(b"40000 folder%03d\0%b" % (number, tree) for number in range(width)))
            paths[b"/%d" % level] = tree
        person = b"A <a@example.org> 1800000000 +0000"
        text = b"tree %b\nauthor %b\ncommitter %b\n\nnested\n" % (tree.hex().encode(), person, person)
        return self._revision(self.add(COMMIT, text), (), paths)

    def files(self, commit: bytes) -> dict[str, bytes]:
        """Return the files of a commit."""
        paths = self._paths[commit]
        return {path.decode(): self.objects[key].text for path, key in paths.items() if self.objects[key].meta == BLOB}

    def key_at(self, commit: bytes, path: str) -> bytes:
        """Return the id of the file at a path."""
        return self._paths[commit][path.encode()]

    def ancestors(self, tips: Iterable[bytes]) -> set[bytes]:
        """Return the members of `tips` that this history has, and all their ancestors."""
        return ancestors(tips, self.parents)

    def announced(self, revision: bytes) -> GraphNode:
        """Return a revision with its parents."""
        return GraphNode(revision, tuple(Parent(parent) for parent in self.parents[revision]))

    def segment(self, revision: bytes) -> bytes:
        """Return the segment of a revision: deltas on the versions that its parents have."""
        made = self._made.get(revision)
        if made is None:
            parents = [Parent(parent) for parent in self.parents[revision]]
            items = []
            for key, path in self.introduced[revision]:
                record = self.objects[key]
                older = [self._paths.get(parent.id, {}).get(path) for parent in parents[:2]] if path else []
                candidates = [Candidate(each) for each in older if each is not None and each != key]
                if key == revision and record.meta == COMMIT:
                    candidates = [Candidate(parent.id) for parent in parents[:2]]
                items.append(NewRecord(0, key, record.meta, record.text, candidates, path))
            made = self._made[revision] = self._writer.segment(revision, parents, items)
        return made

    def body(self, revisions: Iterable[bytes], *, graph_first: bool = False) -> bytes:
        """Return the body of a push."""
        listed = list(revisions)
        graph = encode_graph([self.announced(revision) for revision in listed]) if graph_first else b""
        return graph + b"".join(self.segment(revision) for revision in listed)

    def _tree(self, files: Mapping[bytes, bytes], path: bytes, paths: dict[bytes, bytes]) -> bytes:
        here: dict[bytes, tuple[bytes, bytes]] = {}
        below: dict[bytes, dict[bytes, bytes]] = {}
        for name, text in files.items():
            head, slash, rest = name.partition(b"/")
            if slash:
                below.setdefault(head, {})[rest] = text
            else:
                here[name] = (b"100644", self.add(BLOB, text))
                paths[path + name] = here[name][1]
        for head, inside in below.items():
            here[head] = (b"40000", self._tree(inside, path + head + b"/", paths))
        order = sorted(here, key=lambda name: name + (b"/" if here[name][0] == b"40000" else b""))
        key = self.add(TREE, b"".join(b"%b %b\0%b" % (here[name][0], name, here[name][1]) for name in order))
        paths[path or b"/"] = key
        return key

    def _revision(self, key: bytes, parents: tuple[bytes, ...], paths: Mapping[bytes, bytes]) -> bytes:
        if key in self.parents:
            return key
        known: frozenset[bytes] = frozenset().union(*(self._reach[parent] for parent in parents))
        listed = {key: b""}
        # `paths` of a commit names keys by path, that of a tag or bare tip is by key.
        for first, second in paths.items():
            path, each = (first, second) if second else (b"", first)
            if each not in known:
                listed.setdefault(each, path)
        self.parents[key] = parents
        self.introduced[key] = list(listed.items())
        self._reach[key] = known | listed.keys()
        self._paths[key] = {path: each for path, each in paths.items() if each}
        return key


def create(transaction: Transaction) -> None:
    """Do the work of `Repository.create`."""
    transaction.create(GIT, KINDS, SETTINGS)


def upload(
    repository: PackRepository, body: bytes, segments: int, *, graph_first: bool = False, chunk: int = 4096
) -> Upload:
    """Upload a whole body, as a server would receive it."""
    transaction = repository.begin()
    if not transaction.exists:
        create(transaction)
    made = repository.receive(transaction, graph_first)
    try:
        for at in range(0, len(body), chunk):
            made.write(body[at : at + chunk])
        made.finish(segments, len(body))
    except BaseException:
        made.abandon()
        raise
    return made


def push(
    repository: PackRepository,
    history: History,
    revisions: Iterable[bytes],
    refs: Mapping[bytes, bytes | None] = {},
    *,
    force: bool = True,
    graph_first: bool = False,
    request: bytes | None = None,
    age: int = 0,
    first: Callable[[Transaction], object] = create,
) -> CommitOutcome:
    """Push: create the repository, bring the revisions, move refs (None deletes one; without `force` only forward)."""
    listed = list(revisions)

    def plan(transaction: Transaction) -> bytes:
        first(transaction)
        transaction.check_parents()
        for name, tip in refs.items():
            old = transaction.ref(name)
            if tip is not None and old is not None and not force and not transaction.is_ancestor(old[0].id, tip):
                raise DivergedBranches(name, old[0].id)
            transaction.set_ref(name, None if tip is None else (Tip(tip),))
        return b"outcome of %d revisions" % len(listed)

    body = history.body(listed, graph_first=graph_first)
    sent = upload(repository, body, len(listed), graph_first=graph_first) if listed else None
    return repository.commit(request or request_id(), age, "user", plan, sent)


def locate(snapshot: Snapshot, kind: int, key: bytes) -> list[Location]:
    """Return all copies of a record, the lowest position first."""
    digest = record_digest(kind, key)
    packs = enumerate(snapshot.packs)
    return [snapshot._location(number, row) for number, pack in packs for row in pack.index.find_digest(digest)]


def refs_of(repository: PackRepository) -> dict[bytes, bytes]:
    """Return the refs with their tips."""
    return {name: value[0].id for name, value in repository.snapshot().state.refs().items()}


def check_whole(repository: PackRepository, history: History) -> Snapshot:
    """Check that the repository verifies, and that every record that its refs reach equals the pushed one."""
    report = repository.verify()
    assert report.problems == (), report.problems
    snapshot = repository.snapshot()
    seen: set[bytes] = set()
    todo = list(refs_of(repository).values())
    while todo:
        revision = todo.pop()
        if revision in seen:
            continue
        seen.add(revision)
        todo += history.parents[revision]
        assert snapshot.ordinal(revision) is not None
        for key, _path in history.introduced[revision]:
            location = snapshot.first(0, key)
            assert location is not None
            assert snapshot.record(location) == history.objects[key]
    return snapshot


def joined(text: Text) -> bytes:
    """Return the bytes of a text that may come in parts."""
    found = b"".join(text.parts)
    assert len(found) == text.length
    return found
