"""transports.local: what only the operating system can do; the promises are in tests/conformance."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from transports import local
from transports.base import EntryKind, ReadFile
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSpace,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.local import LocalTransport


@pytest.fixture
def transport(tmp_path: Path) -> LocalTransport:
    return LocalTransport(tmp_path)


def test_a_folder_is_not_published(transport: LocalTransport) -> None:
    """The system says of it what it says where there are no links."""
    transport.make_directory("folder")
    with pytest.raises(TransportFailed, match="'folder': not a plain file"):
        transport.publish("folder", "1")
    assert transport.list_directory("") == ["folder"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        *[(number, NotSupported) for number in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)],
        (errno.EACCES, PermissionDenied),
        (errno.EIO, TransportFailed),
    ],
)
def test_where_there_are_no_links(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[TransportError]
) -> None:
    """Any other failure is raised, because the link may have been made."""
    transport.put("file", [])
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(expected):
        transport.link("file", "1")


def failing(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, NoSuchFile),
        (errno.EEXIST, FileExists),
        (errno.EACCES, PermissionDenied),
        (errno.EPERM, PermissionDenied),
        (errno.EROFS, PermissionDenied),
        (errno.ENOTDIR, NotADirectory),
        (errno.ENOTEMPTY, DirectoryNotEmpty),
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.ELOOP, TransportFailed),
        (errno.EIO, TransportFailed),
        (errno.ENAMETOOLONG, TransportFailed),
        (errno.EMFILE, TransportFailed),
    ],
)
def test_system_errors_by_number(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, number: int, expected: type[TransportError]
) -> None:
    monkeypatch.setattr(os, "mkdir", failing(number))
    with pytest.raises(expected) as caught:
        transport.child("a").make_directory("b")
    assert caught.value.wire_arguments()["path"] == "a/b"
    if expected is TransportFailed:
        assert os.strerror(number) in str(caught.value)


def test_full_disk_while_writing(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport) -> None:
    file = transport.create("new")
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    with pytest.raises(NoSpace, match="'new'"):
        file.write(b"x")
    file.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_failed_sync_is_always_unknown_durability(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, number: int
) -> None:
    """ENOSPC at a sync is no clean refusal: some of the bytes may be durable."""
    file = transport.create("new")
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(TransportFailed, match="sync failed"):
        file.sync()
    with pytest.raises(TransportFailed, match="sync failed"):
        transport.sync_directory("")
    file.close()


def test_sync_uses_the_full_sync_where_the_system_has_one(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(local, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append(command))
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    transport.put("new", [b"x"])
    transport.sync_directory("")
    assert asked == [51, 51]


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, view: write(descriptor, view[:3]))
    transport.put("new", [b"0123456789"])
    assert transport.get("new") == b"0123456789"


def test_short_reads_are_continued(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport) -> None:
    transport.put("new", [b"0123456789"])
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pread(descriptor, min(size, 3), offset))
    file = transport.open_read("new")
    assert file.read_at(1, 100) == b"123456789"
    assert file.read_at(1, 4) == b"1234"
    file.close()


def test_no_read_gets_the_bytes_of_another_file(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, tmp_path: Path
) -> None:
    """The file is closed, and another one opened, between the moment a read looks at the number and its call."""
    transport.put("file", [b"right"])
    transport.put("other", [b"wrong"])
    file = transport.open_read("file")
    others: list[ReadFile] = []

    def interrupted(descriptor: int, size: int, offset: int, pread: Callable[..., bytes] = os.pread) -> bytes:
        file.close()
        others.append(transport.open_read("other"))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", interrupted)
    assert file.read_at(0, 5) == b"right"
    with pytest.raises(TransportFailed, match="the file is closed"):
        file.read_at(0, 5)
    with pytest.raises(TransportFailed, match="the file is closed"):
        file.size()


def test_descriptors_are_given_back(transport: LocalTransport) -> None:
    transport.make_directory("folder")
    transport.put("file", [b"x"])
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        with pytest.raises(FileExists):
            transport.create("file")
        with pytest.raises(TransportFailed):
            transport.open_read("folder")
        transport.get("file")
        transport.open_read("file")  # Dropped without a close.
        transport.create("dropped")
        transport.delete("dropped")
        transport.sync_directory("")
    assert len(os.listdir("/dev/fd")) == before


def test_named_pipe_is_not_waited_for(transport: LocalTransport, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert transport.stat("pipe").kind is EntryKind.OTHER
    with pytest.raises(TransportFailed, match="not a plain file"):
        transport.get("pipe")


def test_names_that_are_not_utf8_are_left_out(transport: LocalTransport, tmp_path: Path) -> None:
    try:
        os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    except OSError as wrong:  # Some systems (macOS) keep no such name, which is just as well.
        assert wrong.errno == errno.EILSEQ  # noqa: PT017
    transport.put("kept", [])
    assert transport.list_directory("") == ["kept"]


def test_real_path_shows_where_links_lead(transport: LocalTransport, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "stays").symlink_to("inside")
    (tmp_path / "leaves").symlink_to("/")
    root = transport.real_path()
    assert transport.real_path("stays/new") == f"{root}/inside/new"
    assert not transport.real_path("leaves/etc").startswith(root + "/")


def test_describe_is_the_path_on_this_machine(transport: LocalTransport, tmp_path: Path) -> None:
    assert transport.describe() == str(tmp_path)
    assert transport.child("a").describe("b") == f"{tmp_path}/a/b"
    assert LocalTransport("/").describe() == "/"


def test_root_is_taken_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that changes its folder later still means the same files."""
    monkeypatch.chdir(tmp_path)
    transport = LocalTransport(".")
    monkeypatch.chdir("/")
    transport.put("new", [b"x"])
    assert (tmp_path / "new").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["file://elsewhere/srv", "file:relative", "file:", "http:///srv"])
def test_from_url_refuses_what_is_not_here(url: str) -> None:
    with pytest.raises(ValueError, match="not a folder of this machine"):
        local.from_url(url)
