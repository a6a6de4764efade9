"""Changes of a repository, each a request of its own, and of the files of a storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from builders import MAIN, History, push, request_id

from smartserver.store.commit import CommitOutcome
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload
from transports.base import EntryKind, Transport


def push_each(repository: PackRepository, history: History, revisions: Iterable[bytes], name: bytes = MAIN) -> None:
    """Push one revision after the other, each as the tip of a ref."""
    for each in revisions:
        push(repository, history, [each], {name: each})


def change(
    repository: PackRepository, do: Callable[[Transaction], object], sent: Upload | None = None
) -> CommitOutcome:
    """Commit the changes that `do` makes."""

    def plan(transaction: Transaction) -> bytes:
        do(transaction)
        return b""

    return repository.commit(request_id(), 0, "user", plan, sent)


def replace(storage: Transport, path: str, content: bytes) -> None:
    """Put other content in the place of a file."""
    storage.delete(path)
    storage.put(path, [content])


def files(storage: Transport, place: str = "") -> dict[str, bytes]:
    """Return every file below a folder."""
    found = {}
    for name in storage.list_directory(place):
        below = f"{place}/{name}".lstrip("/")
        if storage.stat(below).kind is EntryKind.DIRECTORY:
            found.update(files(storage, below))
        else:
            found[below] = storage.get(below)
    return found
