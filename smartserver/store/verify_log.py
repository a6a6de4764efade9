"""The log read and checked: each record, each checkpoint, and that the checkpoints say what the records do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from smartserver.errors import CorruptFile
from smartserver.store.checkpoint import checkpoint_path, decode_checkpoint, encode_checkpoint, newest_first
from smartserver.store.format import CHECKPOINTS, LOG
from smartserver.store.log import AHEAD, Head
from smartserver.store.record import NOTHING, decode_record, hash_of, record_path
from smartserver.store.state import Misfit, State, first_state
from transports.base import Transport
from transports.steps import Get, GetPublished, ListDirectory


def verify_log(folder: Transport, head: Head) -> Iterator[str]:
    """The damages of the log up to a head, and why nothing follows it.

    Raises:
        TransportError: the store failed.
    """
    if head.damage is not None:
        yield str(head.damage)
    names, records = ListDirectory(CHECKPOINTS), ListDirectory(LOG)
    folder.perform([names, records])
    checkpoints = dict(newest_first(names.result or ()))
    numbers = sorted(int(name) for name in records.result or () if name.isdecimal())
    # Below the newest checkpoint but one there may be anything: it is deleted, or an older copy brought it back.
    floor = [1, *(version for version in sorted(checkpoints) if version in numbers)][-2:][0]
    state: State | None = None
    for number, record in _records(folder, [each for each in numbers if each <= head.state.version]):
        content = record.result
        if content is None:  # Deleted meanwhile.
            continue
        try:
            if state is not None and number > state.version + 1:
                if state.version >= floor and _is_there(folder, state):
                    yield f"{record_path(state.version + 1)} is missing"
                state = None
            state = _next(state, number, content, record.path)
        except (CorruptFile, Misfit) as wrong:
            yield str(wrong)
            state = None
        if number in checkpoints:
            file = Get(checkpoint_path(number, checkpoints[number]))
            folder.perform([file])
            if file.result is None:
                continue
            try:
                said = decode_checkpoint(file.result, file.path)
            except CorruptFile as wrong:
                yield str(wrong)
                continue
            if said.hash != hash_of(content):
                yield f"{file.path}: it is of another record {number}"
            elif state is not None and encode_checkpoint(state) != file.result:
                yield f"{file.path}: it is not what the records before it say"
            else:
                state = said
    if state is not None and state.version == head.state.version:
        try:
            for _ in state.refs().values():  # They travel as they are stored.
                pass
        except CorruptFile as wrong:
            yield str(wrong)


def _records(folder: Transport, numbers: Sequence[int]) -> Iterator[tuple[int, GetPublished]]:
    """Records, read many at once."""
    for first in range(0, len(numbers), AHEAD):
        read = {number: GetPublished(record_path(number)) for number in numbers[first : first + AHEAD]}
        folder.perform(list(read.values()))
        yield from read.items()


def _is_there(folder: Transport, state: State) -> bool:
    """Whether the record of a state was not deleted meanwhile: then those after it were not either."""
    record = GetPublished(record_path(state.version))
    folder.perform([record])
    return record.result is not None and hash_of(record.result) == state.hash


def _next(state: State | None, number: int, content: bytes, path: str) -> State | None:
    """The state after a record; None where that of the record before it is not known."""
    record = decode_record(content, path)
    if number == 1 and record.parent == NOTHING:
        return first_state(hash_of(content))
    return None if state is None else state.after(record, hash_of(content))
