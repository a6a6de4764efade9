"""transports.sftp, transports.sftp_talks, sshd: SFTP against the promises of `transports.base`, on OpenSSH's
server and on Twisted Conch's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import Sshd
from transport_publishing import PublishSuite
from transport_suite import TransportSuite

from transports import sftp_packets, sftp_talks, steps
from transports.base import Transport
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in

pytestmark = pytest.mark.sockets

CONCH = Path(__file__).parents[1] / "conch_server.py"


@pytest.fixture(scope="module")
def line(sshd: Sshd) -> Iterator[Line]:
    made = Line(lambda: log_in(Account(sshd.host, port=sshd.port, config=str(sshd.config))))
    yield made
    made.close()


@pytest.fixture(scope="module")
def conch(sshd: Sshd) -> Iterator[Line]:
    command = [sys.executable, str(CONCH), str(sshd.folder / "host_key"), str(sshd.folder / "user_key.pub")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"LOGNAME": sshd.user}) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        made = Line(lambda: log_in(Account("127.0.0.1", port=port, config=str(sshd.config))))
        yield made
        made.close()
        server.terminate()


class TestOpenSsh(TransportSuite):
    @pytest.fixture
    def transport(self, line: Line, tmp_path: Path) -> Transport:
        return SftpTransport(line, str(tmp_path), f"sftp://there{tmp_path}")

    def test_a_folder_that_is_read_on(
        self, transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sftp_talks, "LISTED", (1, 2))
        monkeypatch.setattr(sftp_talks, "READ_ON", 3)
        names = [f"{number:04}" for number in range(1000)]
        for name in names:
            (tmp_path / name).touch()
        assert transport.list_directory("") == names
        assert transport.list_directory("") == names


class TestOpenSshWithoutLinks(PublishSuite):
    """It is asked for links, and refuses: its file system may have none."""

    @pytest.fixture
    def transport(self, line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Transport:
        refused = sftp_packets.Request(sftp_packets._Kind.EXTENDED, sftp_packets._string(b"none@example.org"))
        monkeypatch.setattr(sftp_packets, "hardlink", lambda _source, _target: refused)
        monkeypatch.setattr(line, "links", True)
        return SftpTransport(line, str(tmp_path), f"sftp://there{tmp_path}")

    def test_what_follows_is_done_once(self, place: Transport, line: Line) -> None:
        """The steps that were sent with the refused link are sent again."""
        place.put("incoming/a", [b"a"])
        read = steps.GetPublished("log/1")
        place.perform([steps.Publish("incoming/a", "log/1"), steps.Put("after", b"after"), read])
        assert (read.result, place.get("after"), line.links) == (b"a", b"after", False)
        assert place.list_directory("log/1") == ["record"]


class TestConch(TransportSuite):
    """It replaces files by a plain rename, and has no fsync."""

    @pytest.fixture
    def transport(self, conch: Line, tmp_path: Path) -> Transport:
        return SftpTransport(conch, str(tmp_path), f"sftp://there{tmp_path}")
