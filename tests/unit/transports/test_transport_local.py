"""transports.local: what only the operating system can do; the promises are in tests/conformance."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        with transport.lock("lock"):
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


HOLD = """
import sys
from transports.local import LocalTransport
with LocalTransport(sys.argv[1]).lock("lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def held_elsewhere(path: Path) -> bool:
    """Whether another open file has the flock."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_lock_excludes_other_processes_and_dies_with_its_holder(transport: LocalTransport, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert held_elsewhere(tmp_path / "lock")
        holder.kill()
    with transport.lock("lock"):
        assert held_elsewhere(tmp_path / "lock")
    assert not held_elsewhere(tmp_path / "lock")
    assert (tmp_path / "lock").exists()


PATIENCE = 60.0
"""Seconds after which a test gives up."""


def test_who_wants_the_lock_again_waits_for_those_who_wait(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look at it now and then, which alone would be too seldom."""
    monkeypatch.setattr(local, "LINE_WAIT", PATIENCE)
    order: list[str] = []

    def wait_for_it() -> None:
        with transport.lock("lock", PATIENCE):
            order.append("waiter")

    with ThreadPoolExecutor(1) as threads:
        with transport.lock("lock", PATIENCE):
            waiter = threads.submit(wait_for_it)
            end = time.monotonic() + PATIENCE
            while not held_elsewhere(tmp_path):
                assert time.monotonic() < end, "nobody stands in line"
                time.sleep(0.001)
        with transport.lock("lock", PATIENCE):
            order.append("again")
        waiter.result(PATIENCE)
    assert order == ["waiter", "again"]
    assert not held_elsewhere(tmp_path)


def test_who_is_stopped_in_line_holds_up_nobody(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LINE_WAIT", 0.01)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for wait in (0, PATIENCE):
            with transport.lock("lock", wait):
                assert held_elsewhere(tmp_path / "lock")
    finally:
        os.close(descriptor)


def test_a_file_system_that_locks_no_folder(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def files_only(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", files_only)
    with transport.lock("lock", PATIENCE):
        assert held_elsewhere(tmp_path / "lock")


@pytest.mark.parametrize("url", ["file://elsewhere/srv", "file:relative", "file:", "http:///srv"])
def test_from_url_refuses_what_is_not_here(url: str) -> None:
    with pytest.raises(ValueError, match="not a folder of this machine"):
        local.from_url(url)


@pytest.mark.parametrize("wait", [None, 30.0, 0.0])
def test_who_waited_for_a_lock_that_was_deleted_has_the_new_one(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float | None
) -> None:
    """The holder deletes it, as the last he does, while another waits with the old file open."""
    opened = LocalTransport._open_lock
    deleted: list[str] = []

    def open_lock(self: LocalTransport, path: str) -> int:
        descriptor = opened(self, path)
        if not deleted:
            os.unlink(tmp_path / path)
            deleted.append(path)
        return descriptor

    monkeypatch.setattr(LocalTransport, "_open_lock", open_lock)
    if wait == 0.0:
        with transport.try_lock("lock") as held:
            assert held
            assert held_elsewhere(tmp_path / "lock")
    else:
        with transport.lock("lock", wait):
            assert held_elsewhere(tmp_path / "lock")
    assert deleted == ["lock"]
