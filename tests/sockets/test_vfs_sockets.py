"""client.vfs_transport, server.vfs: a transport's promises over a real socket, several clients, what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from serving import Server

from smartserver.client.vfs_transport import VfsTransport, from_url
from transports.base import Transport
from transports.conformance import TransportSuite

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest"),
]


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
