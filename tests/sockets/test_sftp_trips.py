"""transports.sftp: the cost of each operation on a long link, with a real OpenSSH server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshd import Sshd

from netem.proxy import Proxy
from transports import steps
from transports.base import ReadFile
from transports.errors import DirectoryNotEmpty
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in

pytestmark = pytest.mark.sockets

RTT = 0.02
MIB = bytes(range(256)) * 4096
Connected = Callable[..., Proxy]


def place(server: Sshd, folder: Path, link: Proxy) -> SftpTransport:
    """A folder on a real SFTP server through a link; nothing is connected yet."""
    account = Account(link.host, port=link.port, config=str(server.config))
    return SftpTransport(Line(lambda: log_in(account)), str(folder), "sftp://there")


@pytest.fixture
def link(sshd: Sshd, proxy: Connected) -> Proxy:
    return proxy((sshd.host, sshd.port), RTT)


@pytest.fixture
def transport(sshd: Sshd, link: Proxy, tmp_path: Path) -> Iterator[SftpTransport]:
    """A connection after login, with some files; the login does not count."""
    made = place(sshd, tmp_path, link)
    for number in range(20):
        (tmp_path / f"f{number}").write_bytes(b"%d" % number * 1000)
    (tmp_path / "large").write_bytes(MIB)
    (tmp_path / "log").mkdir()
    made.sync_directory("")
    link.take()
    yield made
    made.close()


@pytest.mark.max_round_trips("sftp: log in and ask")
def test_log_in(sshd: Sshd, link: Proxy, tmp_path: Path) -> None:
    made = place(sshd, tmp_path, link)
    assert not made.exists("x")
    made.close()


@pytest.mark.max_round_trips("sftp: get 300")
def test_get_300(transport: SftpTransport) -> None:
    """The steps are read in groups of the size that an exchange keeps under way."""
    asked = [steps.Get(f"f{number % 20}") for number in range(300)]
    transport.perform(asked)
    assert [len(step.content) for step in asked[:20]] == [1000] * 10 + [2000] * 10


@pytest.mark.max_round_trips("sftp: get what is not there")
def test_get_absent(transport: SftpTransport) -> None:
    content, there, names = steps.Get("absent"), steps.GetStat("absent"), steps.ListDirectory("absent")
    transport.perform([content, there, names])
    assert (content.result, there.result, names.result) == (None, None, None)


@pytest.mark.max_round_trips("sftp: ask for all sorts")
def test_questions(transport: SftpTransport) -> None:
    whole, ranges, names = (
        steps.Get("large"),
        steps.ReadRanges("large", [(500, 9), (1 << 20, 9), (7, 1)]),
        steps.ListDirectory(""),
    )
    transport.perform([whole, ranges, steps.GetStat("f1"), names, steps.GetStat("absent")])
    assert (whole.content, ranges.result) == (MIB, [MIB[500:509], b"", MIB[7:8]])
    assert names.result is not None


@pytest.mark.max_round_trips("sftp: put 2")
def test_put_2(transport: SftpTransport) -> None:
    transport.perform([steps.Put("new.pack", b"p" * 10_000), steps.Put("new.idx", b"i" * 1000)])


@pytest.mark.max_round_trips("sftp: replace a file")
def test_replace(transport: SftpTransport) -> None:
    transport.perform([steps.Put("root.1", b"new"), steps.Rename("root.1", "f0"), steps.SyncDirectory("")])


@pytest.mark.max_round_trips("sftp: read 1 MiB")
def test_read_large(transport: SftpTransport) -> None:
    assert transport.get("large") == MIB


@pytest.mark.max_round_trips("sftp: write 1 MiB")
def test_write_large(transport: SftpTransport, tmp_path: Path) -> None:
    transport.put("new", [MIB[:700_000], MIB[700_000:]])
    assert (tmp_path / "new").read_bytes() == MIB


@pytest.mark.max_round_trips("sftp: read 50 ranges of an open file")
def test_ranges(transport: SftpTransport, link: Proxy) -> None:
    file: ReadFile = transport.open_read("large")
    link.take()
    wanted = [(number * 20_000, 300) for number in range(50)]
    assert file.read_ranges(wanted) == [MIB[at : at + size] for at, size in wanted]
    file.close()


@pytest.mark.max_round_trips("sftp: list 2000 names")
def test_long_list(transport: SftpTransport, tmp_path: Path, link: Proxy) -> None:
    (tmp_path / "many").mkdir()
    for number in range(2000):
        (tmp_path / "many" / f"{number:04}").touch()
    assert transport.list_directory("many") == [f"{number:04}" for number in range(2000)]


@pytest.mark.max_round_trips("sftp: refused")
def test_refusals_say_why_at_once(transport: SftpTransport, tmp_path: Path) -> None:
    """The reads that explain a refusal are sent together with the operation that may be refused."""
    (tmp_path / "log" / "1").mkdir()
    (tmp_path / "log" / "1" / "record").touch()
    (tmp_path / "log" / "mine").mkdir()
    with pytest.raises(DirectoryNotEmpty):
        transport.perform([steps.Rename("log/mine", "log/1"), steps.Get("f1")])


@pytest.mark.max_round_trips("sftp: publish")
def test_publish(transport: SftpTransport) -> None:
    transport.perform([steps.Publish("f1", "1"), steps.GetStat("f2")])


@pytest.mark.max_round_trips("sftp: publish as a folder")
def test_publish_as_a_folder(transport: SftpTransport, tmp_path: Path) -> None:
    transport._line.links = False
    transport.perform([steps.Publish("f1", "1"), steps.GetStat("f2")])
    assert (tmp_path / "1" / "record").read_bytes() == b"1" * 1000


@pytest.fixture
def as_folder(tmp_path: Path) -> None:
    """Make a folder with a record, as a publication without links leaves it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "record").write_bytes(b"r")


@pytest.mark.usefixtures("as_folder")
@pytest.mark.max_round_trips("sftp: get what was published")
def test_get_published(transport: SftpTransport) -> None:
    folder, file, absent = (steps.GetPublished(path) for path in ("folder", "f1", "absent"))
    transport.perform([folder, file, absent])
    assert (folder.result, file.result, absent.result) == (b"r", b"1" * 1000, None)


@pytest.mark.usefixtures("as_folder")
@pytest.mark.max_round_trips("sftp: withdraw")
@pytest.mark.parametrize("path", ["folder", "f1"])
def test_withdraw(transport: SftpTransport, tmp_path: Path, path: str) -> None:
    transport.withdraw(path, "aside")
    assert not (tmp_path / path).exists()
    assert not (tmp_path / "aside").exists()
