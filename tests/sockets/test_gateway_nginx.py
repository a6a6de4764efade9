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
from needs import needs, program
from processes import Listening, free_port

from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.sockets, pytest.mark.interop, needs("nginx")]


PAGE = Path(__file__).parents[2] / "doc" / "howto" / "serve_stock_git.md"

AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{text}
}}
"""


class Nginx(Listening):
    """Debian's nginx, as a context."""

    def __init__(self, folder: Path, backend: int, certificate: Path, key: Path) -> None:
        """`backend`: the port of the server."""
        folder.mkdir()
        port, file = free_port(), folder / "nginx.conf"
        (text,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        for old, new in (
            ("127.0.0.1:8080", f"127.0.0.1:{backend}"),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/code.pem", str(certificate)),
            ("/etc/ssl/code.key", str(key)),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        file.write_text(AROUND.format(folder=folder, text=text))
        command = [program("nginx"), "-p", str(folder), "-c", str(file), "-e", "stderr"]
        super().__init__(command, port, f"nginx -t -c {file} says why")


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
