"""Random histories made by the real Breezy, as records and segments, and the pushes that bring them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breezy import add, controldir, revision
from breezy.bzr import chk_map, inventory
from builders import request_id

from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.model import Key, Parent, Record, RevisionId, Tip
from smartserver.records.system import system_of
from smartserver.store.commit import CommitOutcome
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT

BZR = "bzr 2a"
KINDS = system_of(BZR).kinds
"""The kinds of records in a Breezy repository."""


class Ids(add.AddAction):  # type: ignore[misc]
    """File ids that depend on the seed alone."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._random = chance

    def __call__(self, inv: object, parent: object, path: str, kind: str, *_: object) -> bytes:
        return b"%b-%016x" % (path.rpartition("/")[2].encode(), self._random.getrandbits(64))


class Author:
    """Commits to a working tree as a random user would; every id depends on the seed alone."""

    def __init__(self, folder: Path, seed: int, files: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        folder.mkdir()
        self.folder = folder
        self.tree: Any = controldir.ControlDir.create_standalone_workingtree(
            str(folder), controldir.format_registry.make_controldir("2a")
        )
        self._ids = Ids(self._random)
        with self.tree.lock_write():
            self.tree.set_root_id(b"the-root")
        self.tips: list[RevisionId] = []
        for number in range(files):
            self._write(f"{self._place()}/file{number}", b"".join(b"%d\n" % line for line in range(number % 40)))
        self.commit()

    def commit(self, *others: RevisionId) -> RevisionId:
        """Commit the working tree as a child of its parent and of `others`."""
        self._count += 1
        with self.tree.lock_write():
            if others:
                self.tree.set_parent_ids([*self.tree.get_parent_ids(), *others])
            self.tree.smart_add([str(self.folder)], action=self._ids)
            made = self.tree.commit(
                f"commit {self._count}\nhas a d\u00e9j\u00e0 vu",
                committer="J\u00f6 <joe@example.com>",
                timestamp=1_800_000_000 + self._count + 0.25,
                timezone=self._random.choice((0, 3600, -12600)),
                rev_id=b"joe@example.com-%d-%016x" % (self._count, self._random.getrandbits(64)),
                revprops={"bugs": f"https://example.com/{self._count} fixed"} if self._random.random() < 0.3 else {},
                allow_pointless=True,
            )
        self.tips.append(made)
        return bytes(made)

    def go_to(self, tip: RevisionId) -> None:
        """Switch to a new branch at this tip."""
        with self.tree.lock_write():
            self.tree.branch.generate_revision_history(tip)
            self.tree.revert(old_tree=self.tree.branch.repository.revision_tree(tip), backups=False)
            self.tree.set_parent_ids([tip])

    def change(self) -> None:
        """Make a few changes of every sort, one of them in a file that each branch changes."""
        self._write("common", b"%d\n" % self._random.getrandbits(30))
        files = [path for path in self._paths() if path.is_file() and not path.is_symlink()]
        for path in self._random.sample(files, min(4, len(files))):
            sort = self._random.random()
            if sort < 0.5:
                path.write_bytes(path.read_bytes() + b"%d\n" % self._random.getrandbits(30))
            elif sort < 0.65:
                path.chmod(0o755 if self._random.random() < 0.5 else 0o644)
            elif sort < 0.8:
                self.tree.rename_one(str(path.relative_to(self.folder)), f"moved{self._random.getrandbits(40):x}")
            elif sort < 0.9:
                self.tree.remove([str(path.relative_to(self.folder))], keep_files=False, force=True)
            else:
                path.with_name(f"link{self._random.getrandbits(40):x}").symlink_to(f"ein/Zi\u00e9l{self._count}")
        self._write(f"{self._place()}/new{self._count}", b"new\n" * self._random.randrange(30))

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if ".bzr" not in path.parts)

    def _place(self) -> str:
        return "/".join(f"folder{self._random.randrange(4)}" for _ in range(self._random.randrange(1, 6)))

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Breezy's warnings on files that it leaves to the garbage collector to close."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def make_repository(folder: Path, seed: int = 0, revisions: int = 24, files: int = 300) -> Any:
    """Make a random history in a repository of Breezy."""
    author = Author(folder / "tree", seed, files)
    chance = random.Random(seed + 1)
    while len(author.tips) < revisions:
        sort = chance.random()
        if sort < 0.25 and len(author.tips) > 2:
            author.go_to(chance.choice(author.tips[-6:]))
        author.change()
        others: list[RevisionId] = []
        if sort > 0.85 or len(author.tips) == 3:
            others = [b"a-ghost-%d" % len(author.tips)]
        elif sort > 0.6:
            with author.tree.branch.repository.lock_read():
                graph = author.tree.branch.repository.get_graph()
                (base,) = author.tree.get_parent_ids()
                others = [tip for tip in author.tips[-8:] if not graph.is_ancestor(tip, base)][:2]
        author.commit(*others)
    repository = author.tree.branch.repository
    with repository.lock_write():
        repository.start_write_group()
        for tip in chance.sample(author.tips, 4):
            repository.add_signature_text(tip, b"-----BEGIN PGP SIGNED MESSAGE-----\nof " + tip + b"\n")
        repository.commit_write_group()
    return repository


@dataclass
class BzrHistory:
    """Revisions, parents first, each with the records that it introduced."""

    parents: dict[RevisionId, tuple[Parent, ...]] = field(default_factory=dict)
    records: dict[RevisionId, list[Record]] = field(default_factory=dict)

    @classmethod
    def of(cls, repository: Any, without: Collection[RevisionId] = ()) -> BzrHistory:
        """Read a repository of Breezy, as if it lacked the revisions `without`."""
        history = cls()
        with repository.lock_read():
            graph = repository.get_graph()
            names = {name for name in repository.all_revision_ids() if name not in without}
            roots: dict[RevisionId, tuple[tuple[bytes, ...], tuple[bytes, ...]]] = {}
            for name in graph.iter_topo_order(names):
                ((_, before, text),) = _read(repository.inventories, [(name,)])
                read = inventory.CHKInventory.deserialise(None, text.splitlines(True), (name,))
                roots[name] = read.id_to_entry.key(), read.parent_id_basename_to_file_id.key()
                said = [each for each in graph.get_parent_map([name])[name] if each != revision.NULL_REVISION]
                history.parents[name] = tuple(Parent(each, each not in roots) for each in said)
                present = [each for each in said if each in roots]
                records = [Record(INVENTORY, name, b"" if before == said else b"\0".join(before) or b"null:", text)]
                texts: dict[tuple[bytes, ...], None] = {}
                for which in (0, 1):
                    known = {roots[parent][which] for parent in present}
                    nodes = chk_map.iter_interesting_nodes(repository.chk_bytes, {roots[name][which]}, known)
                    for page, items in nodes:
                        if page is not None:
                            records.append(Record(CHK, page.key[0], b"", page.get_bytes_as("fulltext")))
                        texts.update((chk_map._bytes_to_text_key(value), None) for _, value in items if not which)
                found = _read(repository.texts, texts)
                records += [Record(TEXT, key, b"\0".join(parents), text) for key, parents, text in found]
                for kind, store in ((REVISION, repository.revisions), (SIGNATURE, repository.signatures)):
                    records += [Record(kind, key, b"", text) for key, _, text in _read(store, [(name,)])]
                history.records[name] = sorted(records, key=lambda each: each.kind)
        return history

    @property
    def tip(self) -> RevisionId:
        """The last revision."""
        return next(reversed(self.parents))

    def ancestors(self, name: RevisionId) -> set[RevisionId]:
        """Return a revision and all its ancestors that are not ghosts."""
        found: set[RevisionId] = set()
        todo = [name]
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                todo += [parent.id for parent in self.parents[each] if not parent.absent]
        return found

    def texts(self) -> Callable[[int, Key], bytes]:
        """Return a function that gives the text of a record."""
        found = {(each.kind, each.key): each.text for records in self.records.values() for each in records}
        return lambda kind, key: found[kind, key]

    def segments(self, *, bases: bool = True) -> Iterator[bytes]:
        """Yield a segment for each revision, with deltas or with every text in full."""
        writer = SegmentWriter(KINDS, bulk=False, texts=self.texts())
        latest: dict[tuple[RevisionId, int, bytes], Key] = {}
        for name, parents in self.parents.items():
            first = next((parent.id for parent in parents if not parent.absent), None)
            items = []
            for record in self.records[name]:
                place = _place(record)
                older = None if first is None or not bases else latest.get((first, record.kind, place))
                candidates = [Candidate(older)] if older is not None else []
                items.append(NewRecord(record.kind, record.key, record.meta, record.text, candidates))
            yield writer.segment(name, parents, items)
            known = {key[1:]: value for key, value in latest.items() if key[0] == first}
            known |= {(record.kind, _place(record)): record.key for record in self.records[name]}
            latest |= {(name, *place): key for place, key in known.items()}


def _place(record: Record) -> bytes:
    """Return the identity across versions of a record: for a text its file, for a page its first lines."""
    if record.kind == CHK:
        return b"".join(record.text.split(b"\n", 5)[:5:2])
    return record.key.partition(b"\0")[0] if record.kind == TEXT else b""


def _read(store: Any, keys: Iterable[tuple[bytes, ...]]) -> Iterator[tuple[Key, list[RevisionId], bytes]]:
    """Yield key, parents and text of each record that is in the store."""
    for each in store.get_record_stream(list(keys), "unordered", True):
        if each.storage_kind != "absent":
            yield b"\0".join(each.key), [key[-1] for key in each.parents or ()], each.get_bytes_as("fulltext")


def create(transaction: Transaction) -> None:
    """Do the work of `Repository.create`."""
    transaction.create(BZR, KINDS, {})


def upload(repository: PackRepository, segments: Sequence[bytes]) -> Upload:
    """Upload segments, as a server would receive them."""
    transaction = repository.begin()
    if not transaction.exists:
        create(transaction)
    made = repository.receive(transaction, False)
    try:
        for segment in segments:
            made.write(segment)
        made.finish(len(segments), sum(map(len, segments)))
    except BaseException:
        made.abandon()
        raise
    return made


def push(repository: PackRepository, segments: Sequence[bytes], tip: RevisionId) -> CommitOutcome:
    """Push segments to the branch at the repository's own path."""

    def plan(transaction: Transaction) -> bytes:
        create(transaction)
        transaction.set_ref(b".", (Tip(tip, b"1"),))
        return b""

    return repository.commit(request_id(), 0, "user", plan, upload(repository, segments))
