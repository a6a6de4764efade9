"""transports.base: what the interface itself does, `put` and `exists`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from memory_transport import Aftermath, MemoryTransport

from transports.base import BytesFile, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import TransportFailed


class Watched(WriteFile):
    """A file that fails where told, and keeps what was done to it."""

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.done: list[str] = []

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.fails_at:
            raise TransportFailed("watched", what)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._do("write")

    def sync(self) -> None:
        self._do("sync")

    def close(self) -> None:
        self.done.append("close")


class GivesWatched(PassingTransport):
    def __init__(self, file: Watched) -> None:
        super().__init__(MemoryTransport())
        self.file = file

    def create(self, path: str) -> WriteFile:
        return self.file


def test_put_writes_syncs_and_closes() -> None:
    file = Watched("nothing")
    GivesWatched(file).put("x", [b"a", b"b"])
    assert file.done == ["write", "write", "sync", "close"]


@pytest.mark.parametrize(("fails_at", "done"), [("write", ["write", "close"]), ("sync", ["write", "sync", "close"])])
def test_put_closes_a_file_that_fails_and_never_syncs_again(fails_at: str, done: list[str]) -> None:
    file = Watched(fails_at)
    with pytest.raises(TransportFailed):
        GivesWatched(file).put("x", [b"a"])
    assert file.done == done


def test_put_closes_when_its_source_fails() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"a"
        raise KeyError("source")

    file = Watched("nothing")
    with pytest.raises(KeyError):
        GivesWatched(file).put("x", chunks())
    assert file.done == ["write", "close"]


def test_put_makes_content_durable_and_leaves_the_name_to_its_folder() -> None:
    transport = MemoryTransport()
    transport.put("x", [b"a" * 10])
    transport.sync_directory("")
    assert transport.crash(Aftermath.DURABLE_ONLY).get("x") == b"a" * 10


def test_exists_does_not_hide_failures() -> None:
    transport = MemoryTransport()
    transport.crash()
    with pytest.raises(TransportFailed):
        transport.exists("x")


def test_a_file_of_bytes() -> None:
    file = BytesFile(b"0123456789")
    assert file.size() == 10
    assert file.read_at(2, 3) == b"234"
    assert file.read_at(8, 5) == b"89"
    assert file.read_at(20, 5) == b""
    assert file.read_ranges([(0, 1), (9, 9)]) == [b"0", b"9"]
    file.close()
    assert file.read_at(0, 2) == b"01"
