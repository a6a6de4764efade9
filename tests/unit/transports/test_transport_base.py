"""transports.base, steps, paths, registry, errors, tar: the interface itself; each promise is in tests/conformance.

transports.decorators: counted, ahead, and cached, which has copies of files that never change."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from counting import Counting
from memory_transport import MemoryTransport
from transport_reads import ReadSuite, populate

from transports import errors, paths, registry, steps
from transports.base import BytesFile, Capability, ReadFile, Step, Transport, WriteFile
from transports.decorators.ahead import AheadTransport
from transports.decorators.cached import CachedTransport, CacheFolder
from transports.decorators.counted import CountedTransport
from transports.decorators.passing import PassingTransport
from transports.errors import CodedError, NoSuchFile, NotSupported, PermissionDenied, TransportFailed
from transports.local import LocalTransport
from transports.steps import Get, GetStat, ListDirectory, Rename
from transports.tar import DamagedArchive, TarTransport


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


def test_a_step_holds_nothing_before_it_was_performed_and_that_once() -> None:
    step = Get("there")
    for what in ("result", "content"):
        with pytest.raises(LookupError, match=r"Get\(path='there', size=None\) was not performed"):
            getattr(step, what)
    storage = MemoryTransport()
    once = ListDirectory("")
    storage.perform([once])
    assert once.result == []
    with pytest.raises(LookupError, match="performed twice"):
        storage.perform([once])


@pytest.mark.parametrize("path", ["", "a", "a/b", "..a", "a..", "...", "a\\b", " ", "naïve 文"])
def test_what_can_be_a_path(path: str) -> None:
    assert paths.check(path) == path


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


def test_file(tmp_path: Path) -> None:
    transport = registry.open_url(f"file://{tmp_path}")
    assert isinstance(transport, LocalTransport)
    assert transport.describe() == str(tmp_path)


@pytest.mark.parametrize("url", ["gopher://x/y", "/srv/x", ""])
def test_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match=f"known schemes: {', '.join(sorted(registry.OPENERS))}$"):
        registry.open_url(url)


def test_every_opener_loads() -> None:
    for opener in registry.OPENERS.values():
        module, _, function = opener.partition(":")
        assert callable(getattr(__import__(module, fromlist=[function]), function))


def test_import_loads_no_backend() -> None:
    loaded = "import sys, transports.registry; print([m for m in sys.modules if m.startswith('transports.')])"
    run = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert "transports.local" not in run.stdout
    assert "transports.registry" in run.stdout


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transports.s3", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ValueError, match=r"^s3:// needs obstore: pip install 'smartserver\[s3\]'$"):
        registry.open_url("s3://bucket")


def concrete() -> list[type[CodedError]]:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, CodedError)]
    return [cls for cls in classes if dataclasses.is_dataclass(cls)]


@pytest.mark.parametrize("cls", concrete())
def test_a_path_that_is_the_stores_root_is_left_out(cls: type[CodedError]) -> None:
    values = ["" if field.name == "path" else "why" for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    assert "''" not in str(cls(*values))


def test_why_nobody_is_permitted_comes_first_and_travels_only_when_there_is_a_reason() -> None:
    assert str(PermissionDenied("a")) == "permission denied: 'a'"
    assert PermissionDenied("a").wire_arguments() == {"path": "a"}
    assert str(PermissionDenied("a", "read-only file system")) == "read-only file system: 'a'"
    assert str(PermissionDenied("")) == "permission denied"


def packed(folder: Path, into: Path) -> BinaryIO:
    """The archive of a folder."""
    with tarfile.open(into, "w") as archive:
        archive.add(folder, ".")
    return into.open("rb")


class TestTar(ReadSuite):
    @pytest.fixture
    def filled(self, tmp_path: Path) -> Iterator[Transport]:
        folder = tmp_path / "folder"
        folder.mkdir()
        populate(LocalTransport(folder))
        with packed(folder, tmp_path / "x.tar") as archive:
            yield TarTransport({"x.tar": archive})

    def test_nothing_can_be_changed(self, filled: Transport) -> None:
        with pytest.raises(NotSupported, match="no way to change a file"):
            filled.create("new")


def test_of_several_archives_the_last_counts(tmp_path: Path) -> None:
    archives: dict[str, BinaryIO] = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "log").mkdir(parents=True)
        (folder / "log" / name).write_text(name)
        (folder / "both").write_text(name)
        archives[name] = packed(folder, tmp_path / f"{name}.tar")
    both = TarTransport(archives)
    assert (both.get("both"), both.get("log/one"), both.list_directory("log")) == (b"two", b"one", ["one", "two"])
    for archive in archives.values():
        archive.close()


def test_each_cut_and_each_flipped_byte_of_a_header_is_one_error(tmp_path: Path) -> None:
    file = tmp_path / "x.tar"
    headers = []
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in ("format", "log/1"):
            member = tarfile.TarInfo(name)
            member.size = 600
            headers.append(archive.offset)
            archive.addfile(member, io.BytesIO(name.encode() * 200))
        end = archive.offset + 2 * tarfile.BLOCKSIZE
    whole = file.read_bytes()[:end]
    # Two bytes behind the sum of a header say nothing.
    flips = [at + each for at in headers for each in range(tarfile.BLOCKSIZE) if each not in (154, 155)]
    flips += [end - 1024, end - 1]
    for damaged in [whole[:at] for at in range(0, end, 100)] + [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in flips
    ]:
        file.write_bytes(damaged)
        with file.open("rb") as opened, pytest.raises(DamagedArchive, match=r"^x is damaged at byte \d+: "):
            TarTransport({"x": opened})
    file.write_bytes(whole)
    with file.open("rb") as opened:
        assert TarTransport({"x": opened}).list_directory("") == ["format", "log"]


OPENED = {"files_opened_to_read": 1}
PUT = {"files_opened_to_write": 1, "file_writes": 1, "file_syncs": 1}


def test_each_call_counts() -> None:
    transport, counting = CountedTransport(MemoryTransport()), Counting()
    transport.put("x", [b"12345", b"678"])
    assert counting.named == PUT | {"file_writes": 2, "file_written_bytes": 8}
    counting = Counting()
    assert transport.get("x") == b"12345678"
    assert counting.named == OPENED | {"file_reads": 1, "file_read_bytes": 8}
    counting = Counting()
    transport.sync_directory("")
    transport.link("x", "z")
    transport.rename("x", "y")
    transport.list_directory("")
    transport.stat("y")
    transport.append("y").write(b"9")
    transport.delete("y")
    transport.make_directory("a")
    transport.remove_directory("a")
    assert counting.named == {
        "files_opened_to_write": 1,
        "file_writes": 1,
        "file_written_bytes": 1,
        "file_syncs": 1,
        "file_renames": 2,
        "folder_listings": 1,
        "file_stats": 1,
        "file_deletions": 2,
    }


class Together(MemoryTransport):
    """Notes how many steps come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []

    def perform(self, steps: Sequence[Step]) -> None:
        self.groups.append(len(steps))
        super().perform(steps)


def test_steps_are_handed_on_together_and_counted_as_the_calls_they_are() -> None:
    storage = Together()
    transport, counting = CountedTransport(storage), Counting()
    changes = [
        steps.MakeDirectory("a"),
        steps.Put("a/x", b"123"),
        steps.Put("a/y", b"4567"),
        steps.Rename("a/y", "a/z"),
        steps.Put("a/new", b"0"),
        steps.Publish("a/new", "a/1"),
        steps.SyncDirectory("a"),
    ]
    transport.perform(changes)
    assert counting.named == {
        "files_opened_to_write": 3,
        "file_writes": 3,
        "file_written_bytes": 8,
        "file_syncs": 4,
        "file_renames": 2,
    }
    counting = Counting()
    reads: list[Step] = [
        steps.GetPublished("a/1"),
        steps.Get("absent"),
        steps.ReadRanges("a/z", [(0, 2), (3, 9)]),
        steps.ListDirectory("a"),
        steps.GetStat("a"),
    ]
    transport.perform(reads)
    assert counting.named == {
        "files_opened_to_read": 2,
        "file_reads": 3,
        "file_read_bytes": 4,
        "file_seeks": 1,
        "folder_listings": 1,
        "file_stats": 1,
    }
    assert storage.groups == [7, 5]
    counting = Counting()
    transport.perform([steps.Withdraw("a/1", "aside")])
    assert counting.named == {"file_deletions": 1}
    counting = Counting()
    with pytest.raises(NoSuchFile):
        transport.perform([steps.Get("a/x"), steps.Delete("absent")])
    assert not counting.named


class Trips(PassingTransport):
    """Counts them, lets nobody read `secret`, and loses its connection at `lost`."""

    def __init__(self, inner: Transport, trips: list[list[str]], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.trips = trips

    def wrap(self, inner: Transport, prefix: str) -> Trips:
        return Trips(inner, self.trips, prefix=prefix)

    def perform(self, steps: Sequence[Step]) -> None:
        self.trips.append([step.path for step in steps])
        for step in steps:
            if step.path == "secret":
                raise PermissionDenied(step.path)
            if step.path == "lost":
                raise TransportFailed("", "the connection is lost")
            if step.path == "odd":
                raise TransportFailed(step.path, "too many links")
            self.inner.perform([step])


@pytest.fixture
def far() -> Trips:
    made = Trips(MemoryTransport(), [])
    made.make_directory("a")
    made.put("a/one", [b"1"])
    return made


def test_what_was_read_ahead_takes_no_trip_and_is_not_kept(far: Trips) -> None:
    ahead = AheadTransport(far)
    ahead.read_ahead([ListDirectory("a"), Get("a/one"), Get("a/two")])
    assert far.trips == [["a", "a/one", "a/two"]]
    child = ahead.child("a")
    assert child.list_directory("") == ["one"]
    here, absent, looked = Get("one"), Get("two"), GetStat("two")
    child.perform([looked])
    child.perform([here, absent])
    assert (here.result, absent.result, looked.result) == (b"1", None, None)
    assert len(far.trips) == 1
    far.inner.put("a/two", [b"2"])
    again, both = Get("two"), GetStat("one")
    child.perform([again, both])
    assert again.result == b"2"
    assert both.result is not None
    assert child.list_directory("") == ["one", "two"]


def test_one_that_fails_ends_nothing_and_what_is_in_it_is_not_read(far: Trips) -> None:
    ahead = AheadTransport(far)
    ahead.read_ahead([Get("secret"), Get("a/one"), Get("secret"), ListDirectory("a")])
    assert len(far.trips) == 3
    assert ahead.list_directory("a") == ["one"]
    with pytest.raises(PermissionDenied):
        ahead.perform([Get("secret")])
    far.trips.clear()
    AheadTransport(far).read_ahead([ListDirectory("secret"), Get("secret/one"), Get("secret/two"), Get("a/one")])
    assert far.trips[1:] == [["a/one"]]


def test_a_lost_connection_ends_all_and_a_file_that_fails_only_itself(far: Trips) -> None:
    ahead = AheadTransport(far)
    with pytest.raises(TransportFailed, match="the connection is lost"):
        ahead.read_ahead([Get("a/one"), Get("lost"), ListDirectory("a")])
    assert len(far.trips) == 1
    ahead.read_ahead([Get("odd"), ListDirectory("a")])
    assert ahead.list_directory("a") == ["one"]


IMMUTABLE = re.compile(r"(?:.+/)?packs/.+")
KIB = bytes(range(256)) * 4


@pytest.fixture
def store() -> MemoryTransport:
    made = MemoryTransport()
    for folder in ("a", "a/packs", "a/log"):
        made.make_directory(folder)
    for number in range(40):
        made.put(f"a/packs/{number}", [KIB, b"%d" % number])
    made.put("a/log/1", [b"one"])
    return made


def over(store: MemoryTransport, folder: Path, size: int = 1 << 20) -> CachedTransport:
    return CachedTransport(store, CacheFolder(folder, size), IMMUTABLE)


def copies(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*"))


def test_a_copy_is_read_after_a_restart_without_the_store(store: MemoryTransport, tmp_path: Path) -> None:
    assert over(store, tmp_path / "c").child("a").get("packs/1") == KIB + b"1"
    store.delete("a/packs/1")
    again = over(store, tmp_path / "c")
    file = again.open_read("a/packs/1")
    assert (file.size(), file.read_at(1020, 90), file.read_at(2000, 9)) == (1025, KIB[1020:] + b"1", b"")
    content, there = Get("a/packs/1"), GetStat("a/packs/1")
    again.perform([there, content])
    assert (there.result, content.content) == (None, KIB + b"1")
    for wrong in ("a/packs/1", "a/packs/99"):
        with pytest.raises(NoSuchFile):
            over(store, tmp_path / "other").open_read(wrong)


def test_what_is_brought_is_not_fetched(store: MemoryTransport, tmp_path: Path) -> None:
    """Copies are made of what moves to its name; of what could not be moved nobody asks."""
    cached = over(store, tmp_path)
    for name in ("one", "two", "three"):
        cached.put(f"a/log/{name}", [KIB, name.encode()])
    cached.rename("a/log/one", "a/packs/one")
    cached.child("a").perform([Rename("log/two", "packs/two"), Rename("log/three", "log/four")])
    assert len(copies(tmp_path)) == 2
    for name in ("one", "two"):
        store.delete(f"a/packs/{name}")
        assert cached.get(f"a/packs/{name}") == KIB + name.encode()
    with pytest.raises(NoSuchFile):
        cached.rename("a/log/missing", "a/packs/missing")


def test_a_folder_that_was_deleted_is_made_again(store: MemoryTransport, tmp_path: Path) -> None:
    cached = over(store, tmp_path / "c")
    shutil.rmtree(tmp_path / "c")
    assert cached.get("a/packs/1") == KIB + b"1"
    assert len(copies(tmp_path / "c")) == 1
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_several_are_fetched_in_one_trip(store: MemoryTransport, tmp_path: Path) -> None:
    trips: list[list[str]] = []
    cached = CachedTransport(Trips(store, trips), CacheFolder(tmp_path, 1 << 20), IMMUTABLE)
    cached.get("a/packs/3")
    wanted = [Get(f"a/packs/{number}") for number in (1, 2, 3, 99)]
    cached.perform(wanted)
    assert [step.result for step in wanted] == [KIB + b"1", KIB + b"2", KIB + b"3", None]
    assert trips == [["a/packs/1", "a/packs/2", "a/packs/99"]]
    assert len(copies(tmp_path)) == 3


def test_what_changes_is_the_store_s(store: MemoryTransport, tmp_path: Path) -> None:
    cached = over(store, tmp_path)
    assert cached.get("a/log/1") == b"one"
    store.delete("a/log/1")
    store.put("a/log/1", [b"two"])
    assert cached.get("a/log/1") == cached.open_read("a/log/1").read_at(0, 9) == b"two"
    assert copies(tmp_path) == []


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_damaged_copy_is_fetched_again(harm: str, store: MemoryTransport, tmp_path: Path) -> None:
    over(store, tmp_path).get("a/packs/1")
    (copy,) = copies(tmp_path)
    content = copy.read_bytes()
    copy.write_bytes({"cut": content[:-20], "flip": content[:7] + b"?" + content[8:], "empty": b""}[harm])
    assert over(store, tmp_path).get("a/packs/1") == KIB + b"1"
    assert copy.read_bytes() == content


def test_the_folder_is_bounded(store: MemoryTransport, tmp_path: Path) -> None:
    """The last used copies stay; an open one stays readable; a file that would fill it is read from the store."""
    cached = over(store, tmp_path, size=16 * 1100)
    first = cached.open_read("a/packs/0")
    for number in range(1, 40):
        cached.get(f"a/packs/{number}")
        for age, copy in enumerate(sorted(copies(tmp_path), key=os.path.getmtime, reverse=True)):
            os.utime(copy, (100 - age, 100 - age))
        cached.get("a/packs/5" if number > 5 else "a/packs/1")
        assert len(copies(tmp_path)) <= 17
    assert first.read_at(1024, 9) == b"0"
    store.delete("a/packs/0")
    assert cached.get("a/packs/5") == KIB + b"5"
    with pytest.raises(NoSuchFile):
        cached.get("a/packs/0")
    store.put("a/packs/large", [KIB * 10])
    before = copies(tmp_path)
    assert cached.get("a/packs/large") == KIB * 10
    assert copies(tmp_path) == before


def test_what_a_killed_process_left_is_bounded_too(store: MemoryTransport, tmp_path: Path) -> None:
    cached = over(store, tmp_path, size=16 * 1100)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "left").write_bytes(bytes(16 * 1100))
    os.utime(tmp_path / "new" / "left", (0, 0))
    cached.get("a/packs/1")
    assert not (tmp_path / "new" / "left").exists()


def test_a_copy_that_cannot_be_read_is_the_store_s(
    store: MemoryTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(store, tmp_path).get("a/packs/1")
    pread, broken = os.pread, [True]

    def fails_once(descriptor: int, size: int, offset: int) -> bytes:
        if broken and broken.pop():
            raise OSError(errno.EIO, "the disk is broken")
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", fails_once)
    assert over(store, tmp_path).get("a/packs/1") == KIB + b"1"


def test_threads_that_need_a_file_at_once_fetch_it_once(store: MemoryTransport, tmp_path: Path) -> None:
    opened: list[str] = []

    class Slow(PassingTransport):
        def open_read(self, path: str) -> ReadFile:
            opened.append(path)
            time.sleep(0.05)
            return super().open_read(path)

    cached = CachedTransport(Slow(store), CacheFolder(tmp_path, 1 << 20), IMMUTABLE)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(cached.get, ["a/packs/1"] * 8)) == {KIB + b"1"}
    assert opened == ["a/packs/1"]


def test_it_is_near_though_the_store_is_far(tmp_path: Path) -> None:
    far = CountedTransport(MemoryTransport())
    far.capabilities = Capability.ROUND_TRIPS
    assert CachedTransport(far, CacheFolder(tmp_path, 9), IMMUTABLE).capabilities == Capability(0)
