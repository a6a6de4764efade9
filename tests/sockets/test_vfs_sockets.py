"""client.vfs_transport, server.vfs: a transport's promises over a real socket, several clients, what is refused."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import History, push
from serving import Server, lanes

from smartserver.client.vfs_transport import VfsTransport, from_url
from smartserver.errors import AccessDenied
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.conformance import TransportSuite
from transports.errors import FileExists, PermissionDenied
from transports.local import LocalTransport

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest"),
]

LARGE = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("served")
    with Server(root, "--allow-vfs") as server:
        yield server


_numbers = itertools.count()


def place(server: Server) -> str:
    """A folder of its own."""
    name = f"place-{next(_numbers)}"
    (server.root / name).mkdir()
    return name


def opened(server: Server, path: str) -> VfsTransport:
    return from_url(f"vfs://127.0.0.1:{server.port}/{path}")


class TestSockets(TransportSuite):
    @pytest.fixture
    def transport(self, server: Server) -> Iterator[Transport]:
        transport = opened(server, place(server))
        yield transport
        transport.close()


def test_new_names_have_one_winner(server: Server) -> None:
    name = place(server)

    def put(lane: int) -> bool:
        try:
            opened(server, name).put("new", [b"%d" % lane * 100_000])
        except FileExists:
            return False
        return True

    assert sum(lanes(4, put)) == 1
    assert len(set((server.root / name / "new").read_bytes())) == 1


def test_a_repository_of_another_release_is_read_and_not_changed(server: Server) -> None:
    name = place(server)
    history = History()
    repository = PackRepository(LocalTransport(server.root), f"{name}/project")
    push(repository, history, history.line(2))
    line = server.root / name / "project" / "format"
    files = opened(server, f"{name}/project")
    assert files.get("format") == line.read_bytes()
    line.write_bytes(b"smartserver repository 9\n")
    with pytest.raises(PermissionDenied, match="another release"):
        files.put("incoming/1", [b"x"])


def test_it_is_refused_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with Server(tmp_path) as server:
        files = opened(server, "")
        for change in (lambda: files.get("file"), lambda: files.put("new", [LARGE])):
            with pytest.raises(AccessDenied, match=r"this server refuses them \(start it with `--allow-vfs`\)"):
                change()
        files.close()
    assert os.listdir(tmp_path) == ["file"]


def test_a_server_for_readers(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with Server(tmp_path, "--allow-vfs", anonymous="read") as server:
        files = opened(server, "")
        assert files.get("file") == b"content"
        with pytest.raises(AccessDenied, match="--anonymous write"):
            files.delete("file")
        files.close()
