"""transports.sftp, transports.sftp_session: whoever loses the connection is told, wherever that is; nobody hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshd import Sshd
from test_sftp_trips import place

from netem.effects import Cut
from netem.link import Link
from netem.proxy import Proxy
from transports import steps
from transports.base import Step
from transports.errors import TransportFailed
from transports.sftp import SftpTransport

pytestmark = pytest.mark.sockets

RTT = 0.002


@pytest.fixture
def link(sshd: Sshd, proxy: Callable[..., Proxy]) -> Proxy:
    return proxy((sshd.host, sshd.port), RTT)


@pytest.fixture
def transport(sshd: Sshd, link: Proxy, tmp_path: Path) -> Iterator[SftpTransport]:
    made = place(sshd, tmp_path, link)
    yield made
    made.close()


def cut(link: Proxy, after: int, *, up: bool) -> None:
    """Lose the connection when so many bytes more have come out."""
    link.change(Link(RTT, up=[Cut(after)]) if up else Link(RTT, down=[Cut(after)]))


def whole(link: Proxy) -> None:
    link.change(Link(RTT))


def work(size: int) -> list[Step]:
    """A push as a repository makes one, with a pack of so many bytes."""
    return [
        steps.Get("root"),
        steps.MakeDirectory("new"),
        steps.Put("new/pack", b"p" * size),
        steps.Put("new/index", b"i" * 100),
        steps.SyncDirectory("new"),
        steps.Rename("new", "packs"),
        steps.Put("root.1", b"new"),
        steps.Rename("root.1", "root"),
        steps.SyncDirectory(""),
        steps.ListDirectory("packs"),
        steps.Delete("old"),
    ]


@pytest.mark.parametrize(
    ("size", "up", "cuts"),
    [
        (50_000, True, range(0, 56_000, 7000)),
        (50_000, False, range(0, 2600, 320)),
        (1 << 20, True, range(0, 1_100_000, 180_000)),
    ],
    ids=["up", "down", "up, much"],
)
def test_wherever_it_is_lost_the_steps_before_are_done(
    transport: SftpTransport, link: Proxy, tmp_path: Path, size: int, up: bool, cuts: range
) -> None:
    """Nothing that comes after a step that failed was done: each state is one on the way."""
    steps = 0
    for after in cuts:
        for name in ("root", "old"):
            (tmp_path / name).write_bytes(b"old")
        transport.exists("root")  # It is connected again by itself.
        cut(link, after, up=up)
        try:
            transport.perform(work(size))
        except TransportFailed as lost:
            assert "is lost" in lost.reason  # noqa: PT017
        else:
            steps += 1
        whole(link)
        there = {path.name for path in tmp_path.iterdir()}
        if "packs" in there:
            assert (tmp_path / "packs" / "pack").read_bytes() == b"p" * size
        if (tmp_path / "root").read_bytes() != b"old":
            assert (tmp_path / "root").read_bytes() == b"new"
            assert "packs" in there
        assert "old" in there or (tmp_path / "root").read_bytes() == b"new"
        for folder in ("new", "packs"):
            if folder in there:
                for path in (tmp_path / folder).iterdir():
                    path.unlink()
                (tmp_path / folder).rmdir()
        (tmp_path / "root.1").unlink(missing_ok=True)
    assert steps < len(cuts) // 2


def test_lost_while_streaming(transport: SftpTransport, link: Proxy, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    file = transport.open_read("large")
    cut(link, 1 << 20, up=False)
    with pytest.raises(TransportFailed, match="is lost"):
        file.read_at(0, 3 << 20)
    with pytest.raises(TransportFailed, match="is lost"):
        file.size()
    file.close()
    whole(link)
    written = transport.create("new")
    cut(link, 1 << 20, up=True)
    with pytest.raises(TransportFailed, match="is lost"):
        written.write(bytes(20 << 20))
    with pytest.raises(TransportFailed):
        written.sync()
    with pytest.raises(TransportFailed):
        written.close()
    whole(link)
    assert transport.stat("large").size == 3 << 20
