"""Checkpoints are made, and the records that nobody needs any more are deleted.

Records are deleted one by one in rising order, from the lowest. If a server's own record still exists, no later record
was deleted. The floor is a checkpoint but never the newest, which may rot, and it is an hour old: a
store that repeats a late request must not put a deleted record back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smartserver.errors import CorruptFile
from smartserver.store.checkpoint import checkpoint_path, decode_checkpoint, encode_checkpoint, newest_first
from smartserver.store.format import CHECKPOINTS, INCOMING, LOG
from smartserver.store.log_view import Since
from smartserver.store.record import hash_of, numbers_of, record_path
from smartserver.store.state import State
from transports.base import Transport
from transports.errors import NoSuchFile
from transports.steps import (
    Delete,
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    Publish,
    Put,
    Rename,
    SyncDirectory,
    Withdraw,
)

FEW = 64
"""Records after a checkpoint that are never worth another."""
MANY = 1536
"""Records after a checkpoint that always are."""
SHARE = 16
"""Between them a checkpoint is due when the records take its size divided by this: a change rewrites little of it."""
FLOOR_AGE = 3600.0
"""Seconds a checkpoint has been there before records below it are deleted."""
AT_ONCE = 256
"""Records that are deleted in one go."""


def is_due(since: Since) -> bool:
    """Tell whether another checkpoint is due."""
    return since.records >= MANY or (since.records >= FEW and since.size * SHARE >= since.checkpoint)


def make_checkpoint(folder: Transport, state: State, randomness: Callable[[int], bytes]) -> int:
    """Write a state to a checkpoint, durably; its bytes. Another may do the same at once."""
    content = encode_checkpoint(state)
    temporary = f"{INCOMING}/{randomness(8).hex()}.checkpoint"
    path = checkpoint_path(state.version, state.hash)
    put, rename = Put(temporary, content), Rename(temporary, path)
    folder.perform([SyncDirectory(LOG), put, rename, SyncDirectory(CHECKPOINTS)])
    return len(content)


def create(folder: Transport, path: str, content: bytes, randomness: Callable[[int], bytes]) -> None:
    """Create a file of a repository exclusively and durably. A record whose state is in a checkpoint need follow none.

    Raises:
        FileExists: another is there.
    """
    temporary = f"{INCOMING}/{randomness(8).hex()}.new"
    folder.perform([Put(temporary, content), Publish(temporary, path), SyncDirectory(path.rpartition("/")[0])])


def clean_log(folder: Transport, randomness: Callable[[int], bytes]) -> int:
    """Delete the records and checkpoints below the floor; how many records. A checkpoint was made just before."""
    names, records = ListDirectory(CHECKPOINTS), ListDirectory(LOG)
    folder.perform([names, records])
    found = newest_first(names.result or ())
    floor = _floor(folder, found)
    if floor is None:
        return 0
    below = sorted(number for number in numbers_of(records.result) if number < floor)
    gone = [Withdraw(record_path(number), f"{INCOMING}/{randomness(8).hex()}.withdrawn") for number in below]
    try:
        for first in range(0, len(gone), AT_ONCE):
            folder.perform(gone[first : first + AT_ONCE])
        folder.perform([Delete(checkpoint_path(*name)) for name in found if name[0] < floor])
    except NoSuchFile:  # Another is at it.
        return 0
    return len(gone)


def _floor(folder: Transport, found: Sequence[tuple[int, bytes]]) -> int | None:
    """The version of the newest checkpoint but one, or an older one, that is old enough, whole, and of this log."""
    looks = [GetStat(checkpoint_path(*name)) for name in found]
    folder.perform(looks)
    times = [look.result.modified if look.result is not None else None for look in looks]
    if not times or times[0] is None:
        return None
    for (version, record_hash), time in list(zip(found, times, strict=True))[1:]:
        if time is None or times[0] - time < FLOOR_AGE:
            continue
        file, record = Get(checkpoint_path(version, record_hash)), GetPublished(record_path(version))
        folder.perform([file, record])
        if file.result is None or record.result is None or hash_of(record.result) != record_hash:
            return None
        try:
            decode_checkpoint(file.result, file.path)
        except CorruptFile:
            return None
        return version
    return None
