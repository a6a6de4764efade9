"""transports.base, steps, paths, registry, errors, tar: the interface itself; each promise is in tests/conformance."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from memory_transport import MemoryTransport
from transport_reads import ReadSuite, populate

from transports import errors, paths, registry
from transports.base import BytesFile, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import CodedError, NotSupported, PermissionDenied, TransportFailed
from transports.local import LocalTransport
from transports.steps import Get, ListDirectory
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
