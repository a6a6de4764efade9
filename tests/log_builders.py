"""Logs of a repository, with records that hold only the id of their request."""

from __future__ import annotations

from smartserver.store.format import CHECKPOINTS, FORMAT, INCOMING, LINE, LOG
from smartserver.store.record import Entry, Record, encode_record, hash_of, record_path
from smartserver.store.state import State, beginning
from transports.base import Transport


def begin_log(store: Transport) -> None:
    """Make the files that a repository has before its first change."""
    for folder in (LOG, CHECKPOINTS, INCOMING):
        store.make_directory(folder)
    store.put(record_path(1), [beginning(bytes(16), 0)[0]])
    store.put(FORMAT, [LINE])
    for folder in (LOG, ""):
        store.sync_directory(folder)


def request(number: int) -> bytes:
    """Return the id of a request."""
    return number.to_bytes(16, "big")


def record_of(number: int, state: State, *, by: int = 0) -> tuple[bytes, State]:
    """Return the record of a request that follows a state, and the new state; `by`: the number of the server."""
    entry = Entry(request(number), f"by {by}", b"")
    record = Record(number=state.version + 1, parent=state.hash, time=state.version, entries=(entry,))
    content = encode_record(record)
    return content, state.after(record, hash_of(content))


def contents(state: State) -> list[int]:
    """Return the requests that were carried out."""
    return [int.from_bytes(entry.request, "big") for entry in state.history]


def judge(number: int, state: State, *, by: int = 0) -> tuple[bytes, State] | None:
    """Return the record for a request, and the new state; None if the request was carried out before."""
    return None if state.history.find(request(number)) is not None else record_of(number, state, by=by)
