"""Recovery: finds and restores the changes that are written down on disk and that the root does not know.

An older root, put back from a backup, takes later changes out of the repository. Their intents, packs and log files are
still there, in their places or in `lost/`. A change whose request is in the log is part of the repository. Any other
was made when the intent of a later change names it among those before. Nothing tells that of the last change before
the root was lost: it may never have been acknowledged.

Restoring is pushing again: the segments of the pack are checked like any upload and its entry is carried out under its
own request, each change of a ref only where the ref is what it was before that change. Where it is not, the revision is
kept under another name. So nothing that came since is overwritten, and a client that repeats its request gets its
first answer. Before that the repository gets a new incarnation, since what clients remember of this one may not be
true any more; the log says which one it had.

Where the restored root names packs that were joined meanwhile and deleted, they are cut out of the joined pack again:
it has their segments byte by byte, which the hash in the root proves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from smartserver.errors import (
    CorruptFile,
    MissingBase,
    MissingParents,
    MissingRevision,
    NoSuchRepository,
    OutcomeUnknown,
)
from smartserver.records.faults import Level, Policy
from smartserver.store import strays
from smartserver.store.document import (
    DECLARED,
    INCARNATION,
    MAP,
    REFS,
    SETTINGS,
    PackEntry,
    Root,
    decode_value,
    encode_value,
)
from smartserver.store.format import FOLDERS, INCOMING, LOST, PACKS
from smartserver.store.intent import PREFIX
from smartserver.store.open_pack import pack_path
from smartserver.store.pack import MovedPack, PackWriter
from smartserver.store.root import RootView, next_root
from smartserver.store.snapshot import Snapshot
from smartserver.store.strays import Stray
from smartserver.store.swap import RootFile
from smartserver.store.swap_log import MARK, LogChange, LogEntry, NewLogEntry
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.errors import CodedError, NoSuchFile, TransportError
from transports.steps import Delete, GetStat, ListDirectory, MakeDirectory, Rename, SyncDirectory

if TYPE_CHECKING:
    from smartserver.store.repository import PackRepository


TAKEN = Policy(Level.OFF)
"""What is brought back was taken once, whatever a server would say of it now."""


@dataclass(eq=False)
class LostChange:
    """A change that is written down and that the log does not have."""

    entry: LogEntry
    incarnation: bytes | None = None
    """Of the repository that it was made in; None: a log file has it, which does not say."""
    made: bool = False
    """Whether it surely was made: a later change tells of it."""
    elsewhere: bool = False
    """Whether it was made in another repository at the same place, before or after this one."""
    strays: list[Stray] = field(default_factory=list)
    """The files that it is written down in; one of them is its pack, where it brought revisions."""

    @property
    def id(self) -> str:
        """What a person names it by."""
        return self.entry.request.hex()[:8]

    @property
    def pack(self) -> Stray | None:
        """Its pack."""
        return next((each for each in self.strays if each.pack is not None), None)


@dataclass
class Findings:
    """What lies in a repository that its root does not know."""

    changes: list[LostChange]
    """In the order in which they were made, as far as that is known."""
    joined: list[Stray]
    """Packs that a repack made, whose segments may be those of changes above."""
    others: list[str]
    """Files without an intent that can be read."""
    gone: list[PackEntry]
    """Packs that the root names and that are not there."""

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.changes or self.joined or self.others or self.gone)


def put_back(file: RootFile) -> int:
    """Move the files that the root names and that were moved to `lost/` back to their places; how many. So it is where
    the newest root came back after an older one was there for a day. Folders that a copy left out are made.

    Raises:
        CorruptFile, Unsupported, TransportError: the root cannot be read, or the store failed.
    """
    folder = file.folder
    *places, names = [ListDirectory(place) for place in (*FOLDERS, LOST)]
    folder.perform([*places, names])
    lost = set(names.result or ())
    folder.perform([MakeDirectory(each.path) for each in places if each.result is None])
    if not lost:
        return 0
    with file.swapping() as swap:
        named = [f"{stem}{end}" for stem in strays.named(swap.current) for end in ("", ".pack", ".idx")]
        looks = [GetStat(path) for path in named if path.partition("/")[2] in lost]
        folder.perform(looks)
        moved = [Rename(f"{LOST}/{each.path.partition('/')[2]}", each.path) for each in looks if each.result is None]
        folder.perform([*moved, *map(SyncDirectory, (*strays.PLACES, LOST))] if moved else [])
    return len(moved)


def find(file: RootFile) -> Findings:
    """Look for what the root does not know, but for changes whose writer is still at it.

    Raises:
        CorruptFile, Unsupported, TransportError: the root or the log cannot be read.
    """
    folder = file.folder
    *asked, incoming = [ListDirectory(place) for place in (*strays.PLACES, LOST, INCOMING)]
    folder.perform([*asked, incoming])
    listed = [f"{each.path}/{name}" for each in asked for name in each.result or ()]
    writers = {name.partition("-")[0] for name in incoming.result or ()}
    root = file.read()
    if root.deleted:
        raise NoSuchRepository(file.path)
    view = RootView(root, folder)
    changes: dict[bytes, LostChange] = {}
    joined: list[Stray] = []
    others: list[str] = []
    previous: set[tuple[int, bytes]] = set()
    for stray in strays.find(folder, listed, root, {each.name for each in view.dropped()}):
        if stray.is_joined:
            joined.append(stray)
            continue
        entries, intent = stray.entries(folder), stray.intent
        others += () if entries else stray.paths
        for entry in entries:
            change = changes.setdefault(entry.request, LostChange(entry))
            change.strays.append(stray)
            # A log file may have been written for its newest entry, by a writer that died before the root was swapped.
            change.made |= entry is not entries[-1]
            if intent is not None:
                previous.update(intent.previous)
                change.incarnation = change.incarnation or intent.incarnation
    unknown = [each for each in changes.values() if not view.is_logged(each.entry.request)]
    _tell_made(unknown, previous)
    same = {root.incarnation, *_former(root.incarnation, [*_entries(view), *(each.entry for each in unknown)])}
    for each in unknown:
        each.elsewhere = each.incarnation is not None and each.incarnation not in same
    unknown = [each for each in unknown if any(change.table != INCARNATION for change in each.entry.changes)]
    unknown = [each for each in unknown if each.made or each.entry.request.hex() not in writers]
    unknown.sort(key=lambda each: (each.elsewhere, each.entry.version))
    paths = [GetStat(pack_path(entry.name)) for entry in root.packs]
    folder.perform(paths)
    gone = [entry for entry, look in zip(root.packs, paths, strict=True) if look.result is None]
    if joined and not gone:
        snapshot = Snapshot.open(folder, root)
        joined = [each for each in joined if not strays.is_superseded(each, view, lambda: snapshot)]
    return Findings(unknown, joined, others, gone)


def _tell_made(changes: Sequence[LostChange], previous: Collection[tuple[int, bytes]]) -> None:
    """Note which changes were surely made: a later one names them among those before it, with their true version."""
    versions = {prefix: version for version, prefix in previous if len(prefix) == PREFIX}
    for each in changes:
        request, version = each.entry.request, each.entry.version
        true = versions.get(request[:PREFIX])
        if true is not None:
            each.made, each.entry = True, msgspec.structs.replace(each.entry, version=true)
        each.made |= (version, request[:MARK]) in previous


def _entries(view: RootView) -> Iterator[LogEntry]:
    """The log, as far as it can be read."""
    with contextlib.suppress(CorruptFile, NoSuchFile):
        yield from view.log()


def _former(incarnation: bytes, entries: Iterable[LogEntry]) -> set[bytes]:
    """The incarnations that recoveries gave this repository, before and after its present one."""
    pairs = [(each.old, each.new) for entry in entries for each in entry.changes if each.table == INCARNATION]
    found = {incarnation}
    for _ in pairs:
        found |= {each for pair in pairs if found & set(pair) for each in pair if each is not None}
    return found


def by_default(findings: Findings) -> list[LostChange]:
    """The changes that were surely made in this repository."""
    return [each for each in findings.changes if each.made and not each.elsewhere]


def restore(
    repository: PackRepository,
    findings: Findings,
    chosen: Sequence[LostChange],
    report: Callable[[str, str], None] = lambda what, why: None,
    conflict: Callable[[str, str], None] = lambda what, why: None,
) -> int:
    """Restore changes; how many. `report`: told what could not be restored, and why. `conflict`: told which part of a
    change that was restored is not what it was to be, and why.

    An interrupted one is begun again: what it restored is in the log by then.

    Raises:
        CorruptFile: a pack of the root is gone, and in no joined pack.
        Unsupported, TransportError, OutcomeUnknown: the repository cannot be read or written.
    """
    cut = _restore_packs(repository.folder, repository.file.read(), findings)
    _renew(repository)
    for stray in findings.joined:
        # Only a change says which refs lead there: what is not reached does no harm.
        try:
            _bring(repository, stray, repository.randomness(16), "recover", lambda transaction: b"")
        except (TransportError, OutcomeUnknown):
            raise
        except (MissingParents, MissingBase):
            pass  # It rests on what is in a pack of its own.
        except CodedError as wrong:
            report(str(stray.pack), str(wrong))
    todo, done = list(chosen), 0
    while todo:
        later: list[tuple[LostChange, str]] = []
        for change in todo:
            try:
                for each in _carry_out(repository, change):
                    conflict(change.id, each)
                done += 1
            except (TransportError, OutcomeUnknown):
                raise
            except (MissingParents, MissingBase, MissingRevision) as wrong:
                later.append((change, f"{wrong}; restore the change that it rests on, too"))
            except CodedError as wrong:
                later.append((change, f"{change.pack.pack}: {wrong}" if change.pack is not None else str(wrong)))
        if len(later) == len(todo):  # What they rest on did not come with any other.
            for change, why in later:
                report(change.id, why)
            break
        todo = [change for change, _ in later]
    if cut:
        repository.repack()  # Which gives them an index.
    with contextlib.suppress(TransportError):  # The changes are made, and another recovery clears the rest.
        _clear(repository)
    return done


def _renew(repository: PackRepository) -> None:
    """Give the repository a new incarnation, and say in its log which one it had."""
    with repository.file.swapping() as swap:
        draft = next_root(
            RootView(swap.current, repository.folder),
            now=repository.clock(),
            log=NewLogEntry("recover", repository.randomness(16), b""),
            incarnation=repository.randomness(16),
            fold_log=True,
            randomness=repository.randomness,
        )
        swap.replace(*draft.finish(), renewed=True)


def _carry_out(repository: PackRepository, change: LostChange) -> list[str]:
    """Make a change, except the parts that were changed since; each of these in words."""
    changes = change.entry.changes
    kinds = {each.key.decode(): (each.new or b"").decode() for each in changes if each.table == DECLARED}
    conflicts: list[str] = []

    def plan(transaction: Transaction) -> bytes:
        conflicts.clear()
        for each in changes:
            if not _apply(transaction, each, kinds):
                word = each.key.decode(errors="replace")
                conflicts.append(f"{word} was changed since{_keep(transaction, change, each)}")
        transaction.remember()
        return change.entry.outcomes

    request, user = change.entry.request, change.entry.user
    if change.pack is None:
        repository.commit(request, 0, user, plan)
    else:
        _bring(repository, change.pack, request, user, plan)
    return conflicts


def _keep(transaction: Transaction, lost: LostChange, change: LogChange) -> str:
    """Make a ref for what a ref was to be that was changed since; in words where that is."""
    if change.table != REFS or change.new is None:
        return ""
    prefix, _, rest = change.key.rpartition(b"refs/")
    name = prefix + b"refs/recovered/%b/%b" % (lost.id.encode(), rest)
    transaction.set_ref(name, decode_value(change.new))
    return f"; what it was to be is kept as {name.decode(errors='replace')}"


def _apply(transaction: Transaction, change: LogChange, kinds: dict[str, str]) -> bool:
    """Make one change; False where what it changes is not what it was."""
    word = change.key.decode(errors="replace")
    if change.table == REFS:
        value = transaction.ref(change.key)
        now = None if value is None else encode_value(value)
    elif change.table == SETTINGS:
        now = transaction.settings.get(word)
    elif change.table.startswith(MAP):
        name = change.table.removeprefix(MAP)
        now = transaction.entry(name, change.key) if name in transaction.maps() else None
    else:
        return True  # The kind of a new map, which is used with its first entry.
    if now == change.new or (change.table == REFS and _has_passed(transaction, change)):
        return True
    if now != change.old:
        return False
    if change.table == REFS:
        transaction.set_ref(change.key, None if change.new is None else decode_value(change.new))
    elif change.table == SETTINGS:
        transaction.set_setting(word, change.new)
    else:
        kind = transaction.map_kind(name) or kinds.get(name, "opaque")
        transaction.set_map(name, kind, change.key, change.new)
    return True


def _has_passed(transaction: Transaction, change: LogChange) -> bool:
    """Whether a ref was moved past what a change made of it: its client has pushed on from there since."""
    value = transaction.ref(change.key)
    new = [] if change.new is None else decode_value(change.new)
    return (
        bool(new and value)
        and all(transaction.is_stored(tip.id) for tip in new)
        and all(any(transaction.is_ancestor(tip.id, each.id) for each in value or ()) for tip in new)
    )


def _bring(
    repository: PackRepository,
    stray: Stray,
    request: bytes,
    user: str,
    plan: Callable[[Transaction], bytes],
) -> None:
    """Commit with the segments of a pack as the body."""
    pack = strays.open_pack(repository.folder, stray)
    upload = repository.receive(repository.begin(request, user), request=request, policy=TAKEN)
    try:
        segments = size = 0
        for _, content in pack.segments():
            upload.write(content)
            segments += 1
            size += len(content)
        upload.finish(segments, size)
    except BaseException:
        upload.abandon()
        raise
    repository.commit(request, 0, user, plan, upload)


def _clear(repository: PackRepository) -> None:
    """Delete from `lost/` what is in the repository now."""
    folder, snapshot = repository.folder, repository.snapshot()
    names = ListDirectory(LOST)
    folder.perform([names])
    for stray in strays.find(folder, [f"{LOST}/{name}" for name in names.result or ()], snapshot.root, ()):
        # An intent that was moved here has been written down again with its change.
        if strays.is_logged(stray, snapshot.view) or strays.is_superseded(stray, snapshot.view, lambda: snapshot):
            folder.perform([Delete(path) for path in stray.paths])


# -- packs that were joined and deleted


def _restore_packs(folder: Transport, root: Root, findings: Findings) -> bool:
    """Cut the packs that are gone out of joined ones again; whether there were any. Their indexes are made when the
    repository is opened."""
    for entry in findings.gone:
        if not any(_cut(folder, root, entry, each) for each in findings.joined):
            raise CorruptFile(pack_path(entry.name), 0, "it is gone, and no joined pack has its segments")
    return bool(findings.gone)


def _cut(folder: Transport, root: Root, entry: PackEntry, stray: Stray) -> bool:
    """Make a pack again from the segments of a joined one; whether that has them."""
    pack = strays.open_pack(folder, stray)
    offsets = [offset for offset, _ in pack.segments()]
    ends = {*offsets, pack.end}
    path = pack_path(entry.name)
    places = [MovedPack(pack, offset - pack.first, entry.length, entry.hash, path) for offset in offsets]
    found = next((each for each in places if each.end + each.shift in ends and each.is_whole()), None)
    if found is None:
        return False
    strays.make_lost(folder)
    written = f"{LOST}/{entry.name.hex()}.cut"
    with contextlib.suppress(NoSuchFile):
        folder.delete(written)  # A crash left it.
    with contextlib.closing(folder.create(written)) as file:
        writer = PackWriter(file, pack.kinds)
        for chunk in found.chunks():
            writer.append(chunk)
        writer.finish()
        file.sync()
    folder.perform([Rename(written, pack_path(entry.name)), SyncDirectory(PACKS), SyncDirectory(LOST)])
    return True
