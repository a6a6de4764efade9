"""transports.base, transports.steps, transports.paths: what the interface itself does, without a store.

What each transport promises is in the conformance suite."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator

import pytest
from memory_transport import MemoryTransport
from transport_reads import NO_PATHS

from transports import paths
from transports.base import BytesFile, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import TransportFailed
from transports.steps import Get, ListDirectory


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


@pytest.mark.parametrize(
    ("fails_at", "done"),
    [
        ("nothing", ["write", "write", "sync", "close"]),
        ("write", ["write", "close"]),
        ("sync", ["write", "write", "sync", "close"]),
        ("source", ["write", "close"]),
    ],
)
def test_put_writes_syncs_once_and_closes_whatever_fails(fails_at: str, done: list[str]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"a"
        if fails_at == "source":
            raise TransportFailed("source", "gone")
        yield b"b"

    file = Watched(fails_at)
    with contextlib.nullcontext() if fails_at == "nothing" else pytest.raises(TransportFailed):
        GivesWatched(file).put("x", chunks())
    assert file.done == done


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


def test_a_step_holds_nothing_before_it_was_performed() -> None:
    step = Get("there")
    for what in ("result", "content"):
        with pytest.raises(LookupError, match=r"Get\(path='there', size=None\) was not performed"):
            getattr(step, what)


def test_a_step_is_performed_once() -> None:
    storage = MemoryTransport()
    step = ListDirectory("")
    storage.perform([step])
    assert step.result == []
    with pytest.raises(LookupError, match="performed twice"):
        storage.perform([step])


@pytest.mark.parametrize("path", ["", "a", "a/b", "..a", "a..", "...", "a\\b", " ", "naïve 文"])
def test_what_can_be_a_path(path: str) -> None:
    assert paths.check(path) == path


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_cannot(path: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - a lone surrogate is worded by the codec
        paths.check(path)
    with pytest.raises(ValueError):  # noqa: PT011
        paths.join("a", path)


@pytest.mark.parametrize(
    ("prefix", "path", "joined"), [("", "", ""), ("a", "", "a"), ("", "b/c", "b/c"), ("a/b", "c", "a/b/c")]
)
def test_join(prefix: str, path: str, joined: str) -> None:
    assert paths.join(prefix, path) == joined


@pytest.mark.parametrize(("path", "parts"), [("", ("", "")), ("a", ("", "a")), ("a/b/c", ("a/b", "c"))])
def test_split(path: str, parts: tuple[str, str]) -> None:
    assert paths.split(path) == parts


BUILT_ON_OTHERS = {
    "exists",
    "get_published",
    "local_folder",
    "open_published",
    "perform",
    "publish",
    "publish_as_folder",
    "put",
    "whole",
    "withdraw",
}
"""Methods that are made of others, so that a decorator of those others sees their calls; and `whole` and
`local_folder`: a decorated tree is all there is to its owner, and another process would go around the decorator."""


def test_every_method_is_handed_on() -> None:
    promised = {name for name, _ in inspect.getmembers(Transport, inspect.isfunction) if not name.startswith("_")}
    own = {name for name, _ in inspect.getmembers(PassingTransport, inspect.isfunction)} & vars(PassingTransport).keys()
    assert promised - own == BUILT_ON_OTHERS
