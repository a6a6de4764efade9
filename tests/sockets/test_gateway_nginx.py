"""smartserver.gateway behind nginx, with the configuration of the page about it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import ADMIN
from certificates import Authority
from gateways import GatewayServer, new_repository
from needs import needs
from nginx import Nginx

from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.sockets, pytest.mark.interop, needs("nginx")]


class Place:
    """A server with one user, behind nginx."""

    def __init__(self, server: GatewayServer, nginx: Nginx, authority: Authority, token: str) -> None:
        self.server, self.authority = server, authority
        self.url = f"https://git:{token}@127.0.0.1:{nginx.port}/project"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "access.toml").write_text(ADMIN)
    token = TokenChanges(folder / "access.toml").create("anna", int(time.time()), None, None, read_only=False)[0]
    authority = Authority(folder / "authority")
    with (
        GatewayServer(folder, "--access", str(folder / "access.toml"), anonymous="") as server,
        Nginx(folder / "nginx", server.http_port, *authority.sign("127.0.0.1")) as nginx,
    ):
        yield Place(server, nginx, authority, token)


def test_stock_git(place: Place, tmp_path: Path) -> None:
    git = new_repository(tmp_path / "work", GIT_SSL_CAINFO=str(place.authority.file))
    git.commit("large", "".join(f"{line * line}\n" for line in range(300_000)))
    git("-c", "http.postBuffer=65536", "push", "-q", place.url, "main")  # In chunks.
    clone = git.at("clone")
    git("clone", "-q", place.url, str(clone.folder))
    assert clone("rev-parse", "HEAD") == git("rev-parse", "HEAD")
    git.commit("two")
    git("push", "-q", place.url, "main", "main:other")
    git("push", "-q", place.url, ":other")
    clone("fetch", "-q", "--depth", "1")
    assert "could not read Username" in git("ls-remote", re.sub("git:.*@", "", place.url), status=128)
    assert re.search(
        r'change user=anna .* from="127.0.0.1 behind 127.0.0.1:\d+" via=http', place.server.log.read_text()
    )
