"""Recovery: repairs a damaged log, so that it can be continued, and restores lost changes (`lost`).

To repair the log, a checkpoint is written of the state from which the log continues. It has a new incarnation, since
the knowledge of clients may be wrong now. The misfits above it move to `lost/`, the lowest record last. Then the record
of that checkpoint is published, and the other misfits move. Until that record exists, servers answer from the state
before the damage and refuse changes, because a misfit is above the head. So an interrupted recovery can be run again.

A change is restored like a push: the segments of its pack are checked like any upload, and its entry is carried out
under the id of its own request. So a client that repeats its request gets its first answer. A key changes only if it
still has the value from before that change. A ref that was changed since stays, and the revision gets another ref.

If the state names packs that were joined meanwhile and deleted, they are cut out of the joined pack: it has the same
segments byte for byte, which the hash in the state proves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from smartserver.errors import (
    CorruptFile,
    MissingBase,
    MissingParents,
    MissingRevision,
    NoSuchRepository,
    OutcomeUnknown,
)
from smartserver.records.faults import Level, Policy
from smartserver.store.checkpoint import checkpoint_path, create, make_checkpoint
from smartserver.store.format import CHECKPOINTS, FOLDERS, FORMAT, INCOMING, LINE, LOG, LOST, PACKS, is_marked
from smartserver.store.lost import RECOVERED, Findings, LostChange
from smartserver.store.model import INCOMPLETE
from smartserver.store.open_pack import pack_path
from smartserver.store.pack import PackReader
from smartserver.store.record import NOTHING, Beginning, Change, Entry, PackEntry, decode_record, record_path
from smartserver.store.repack import cut_out
from smartserver.store.repository import PackRepository
from smartserver.store.state import DECLARED, MAP, REFS, SETTINGS, beginning, decode_value, encode_value, following
from smartserver.store.transaction import Transaction
from transports.base import Step
from transports.errors import CodedError, FileExists, TransportError, TransportFailed
from transports.steps import GetPublished, ListDirectory, Rename, SyncDirectory, Withdraw

RESTS = (MissingParents, MissingBase, MissingRevision)
"""The errors of a change that depends on another lost change."""
TAKEN = Policy(Level.OFF)
"""The policy for restored records. They are not checked for faults, because a server has accepted them before."""

Report = Callable[[str, str], None]


def restore(
    repository: PackRepository,
    findings: Findings,
    chosen: Sequence[LostChange],
    report: Report = lambda what, why: None,
    conflict: Report = lambda what, why: None,
) -> int:
    """Repair the log and restore changes. Return the number of restored changes. `report`: is called with the id of
    each change that was not restored, and the reason. `conflict`: is called with the id of a restored change and the
    reason for each part of it that was not applied."""
    folder = repository.folder
    for name in (*FOLDERS, LOST):
        with contextlib.suppress(FileExists):
            folder.make_directory(name)
    for entry in findings.gone:
        if not any(_cut_out(repository, entry, joined) for joined in findings.joined):
            raise CorruptFile(pack_path(entry.name), 0, "the pack is missing, and no other pack has its revisions")
    _mend(repository, findings)
    # A joined pack names no refs, so its revisions may stay unreached, which does no harm.
    todo = [*findings.joined, *chosen]
    while todo:
        later: list[tuple[LostChange, CodedError]] = []
        for change in todo:
            try:
                for why in _carry_out(repository, change):
                    conflict(change.id, why)
            except (TransportError, OutcomeUnknown):
                raise
            except CodedError as error:
                later.append((change, error))
        if len(later) == len(todo):  # No change provided the revisions that the others depend on.
            for change, reason in later:
                if change in chosen or not isinstance(reason, RESTS):
                    report(change.id, _reason(change, reason))
            break
        todo = [change for change, _ in later]
    if findings.gone:
        repository.repack()  # This makes an index for the packs that were cut out.
    # The changes are made; if clearing fails, another recovery does it.
    with contextlib.suppress(TransportError, NoSuchRepository):
        _clear(repository)
    return sum(change not in todo for change in chosen)


def _reason(change: LostChange, error: CodedError) -> str:
    """Return a message with the reason why a change was not restored."""
    if isinstance(error, RESTS):
        return f"{error}; restore the change that it rests on, too"
    return str(error) if change.pack is None else f"{change.pack[0]}: {error}"


def _cut_out(repository: PackRepository, entry: PackEntry, joined: LostChange) -> bool:
    """Restore a missing pack from a joined one. Return False if the joined pack lacks any of its segments. The index of
    the restored pack is rebuilt when the pack is opened next."""
    if joined.pack is None:
        return False
    path, length = joined.pack
    written = f"{INCOMING}/{repository.randomness(8).hex()}.pack"
    with contextlib.closing(repository.folder.open_read(path)) as source:
        if not cut_out(repository.folder, PackReader(source, length, path), entry, written):
            return False
    repository.folder.perform([Rename(written, pack_path(entry.name)), SyncDirectory(PACKS)])
    return True


def _mend(repository: PackRepository, findings: Findings) -> None:
    """Repair the log, so that it continues from the state that was found, with a new incarnation."""
    folder, randomness, state = repository.folder, repository.randomness, findings.state
    entries: list[Entry] = []
    if state.exists:
        new = randomness(16)
        begins = Beginning(new, state.vcs, state.kinds, complete=False)
        entries.append(Entry(randomness(16), "recover", RECOVERED + state.incarnation + new, begins=begins))
    content, after = following(state, repository.clock(), entries)
    if state.hash == NOTHING:
        content, after = beginning(randomness(16), repository.clock())
    make_checkpoint(folder, after, randomness)
    # Misfits below it move later, as servers may answer from them until the record is published.
    below = [path for path in findings.misfits if int(path.rpartition("/")[2][:10]) < after.version]
    _move_to_lost(repository, [path for path in findings.misfits if path not in below])
    try:
        create(folder, record_path(after.version), content, randomness)
    except FileExists as error:
        folder.delete(checkpoint_path(after.version, after.hash))
        raise TransportFailed(LOG, "another process changed the repository meanwhile; try again") from error
    if not is_marked(folder):
        create(folder, FORMAT, LINE, randomness)
    _move_to_lost(repository, below)
    repository.log.forget()


def _move_to_lost(repository: PackRepository, paths: Sequence[str]) -> None:
    moves: list[Step] = []
    for path in paths:
        place, _, name = path.partition("/")
        ending = f".{repository.randomness(4).hex()}" if place == LOG else ""
        moves.append(Rename(path, f"{LOST}/{name}{ending}"))
    repository.folder.perform([*moves, *map(SyncDirectory, (LOST, LOG, CHECKPOINTS))])


def _carry_out(repository: PackRepository, change: LostChange) -> list[str]:
    """Carry out a change, except the parts whose keys were changed since. Return a message for each of these parts."""
    entry, conflicts = change.entry, list[str]()

    def plan(transaction: Transaction) -> bytes:
        conflicts[:] = _replay(transaction, change)
        return entry.outcomes

    upload = None
    if change.pack is not None:
        path, length = change.pack
        transaction = repository.begin()
        _begin_again(transaction, entry)
        upload = repository.receive(transaction, request=entry.request, policy=TAKEN)
        try:
            segments = size = 0
            with contextlib.closing(repository.folder.open_read(path)) as file:
                for _, content in PackReader(file, length, path).segments():
                    upload.write(content)
                    segments += 1
                    size += len(content)
            upload.finish(segments, size)
        except BaseException:
            upload.abandon()
            raise
    repository.commit(entry.request, 0, entry.user, plan, upload, options=entry.options)
    return conflicts


def _clear(repository: PackRepository) -> None:
    """Delete from `lost/` the records whose requests are in the log now."""
    folder, history = repository.folder, repository.snapshot().state.history
    names = ListDirectory(LOST)
    folder.perform([names])
    records = [GetPublished(f"{LOST}/{name}") for name in names.result or () if name.partition(".")[0].isdecimal()]
    folder.perform(records)
    for step in records:
        with contextlib.suppress(CorruptFile):
            record = decode_record(step.result or b"", step.path)
            if all(history.find(entry.request) is not None for entry in record.entries):
                folder.perform([Withdraw(step.path, f"{INCOMING}/{repository.randomness(8).hex()}.withdrawn")])


def _begin_again(transaction: Transaction, entry: Entry) -> None:
    """Create the repository, if an entry created it and it does not exist."""
    if entry.begins is not None:
        changes = [change for change in entry.changes if change.table == SETTINGS]
        settings = {change.key.decode(): change.new for change in changes if change.new}
        incomplete = settings.pop(INCOMPLETE, None) is not None
        transaction.create(entry.begins.vcs, entry.begins.kinds, settings, incomplete=incomplete)


def _replay(transaction: Transaction, change: LostChange) -> list[str]:
    """Apply a change to a transaction, except the parts whose keys were changed since. Return a message for each of
    these parts."""
    entry = change.entry
    _begin_again(transaction, entry)
    kinds = {change.key.decode(): (change.new or b"").decode() for change in entry.changes if change.table == DECLARED}
    conflicts: list[str] = []
    for part in entry.changes:
        if not _apply(transaction, part, kinds):
            word = part.key.decode(errors="replace")
            conflicts.append(f"{word} was changed since{_keep(transaction, change, part)}")
    transaction.remember()
    return conflicts


def _keep(transaction: Transaction, lost: LostChange, change: Change) -> str:
    """Keep the lost value of a ref that was changed since in a new ref. Return the part of the message about this;
    empty if the change is not of a ref, or deletes it."""
    if change.table != REFS or change.new is None:
        return ""
    prefix, _, rest = change.key.rpartition(b"refs/")
    name = prefix + b"refs/recovered/%b/%b" % (lost.id.encode(), rest)
    transaction.set_ref(name, decode_value(change.new))
    return f"; the recovered value is kept as {name.decode(errors='replace')}"


def _apply(transaction: Transaction, change: Change, kinds: dict[str, str]) -> bool:
    """Apply the change of one key. Return False if the key was changed since, so that nothing is applied."""
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
        return True  # The kind of a new map is set with its first entry.
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


def _has_passed(transaction: Transaction, change: Change) -> bool:
    """Tell whether a ref has moved past the value of a change: a client has pushed descendants of it since."""
    value = transaction.ref(change.key)
    new = [] if change.new is None else decode_value(change.new)
    return (
        bool(new and value)
        and all(transaction.is_stored(tip.id) for tip in new)
        and all(any(transaction.is_ancestor(tip.id, now.id) for now in value or ()) for tip in new)
    )
