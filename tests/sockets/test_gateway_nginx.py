"""smartserver.gateway behind nginx, with the configuration of the page about it."""

from __future__ import annotations

import re
import time
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


def test_stock_git(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(ADMIN)
    changes, authority = TokenChanges(tmp_path / "access.toml"), Authority(tmp_path / "authority")
    token = changes.create("anna", int(time.time()), None, None, read_only=False)[0]
    git = new_repository(tmp_path / "work", GIT_SSL_CAINFO=str(authority.file))
    git.commit("large", "".join(f"{line * line}\n" for line in range(300_000)))
    with (
        GatewayServer(tmp_path, "--access", str(tmp_path / "access.toml"), anonymous="") as server,
        Nginx(tmp_path / "nginx", server.http_port, *authority.sign("127.0.0.1")) as nginx,
    ):
        url = f"https://git:{token}@127.0.0.1:{nginx.port}/project"
        git("-c", "http.postBuffer=65536", "push", "-q", url, "main")  # In chunks.
        clone = git.at("clone")
        git("clone", "-q", url, str(clone.folder))
        assert clone("rev-parse", "HEAD") == git("rev-parse", "HEAD")
        git.commit("two")
        git("push", "-q", url, "main", "main:other")
        git("push", "-q", url, ":other")
        clone("fetch", "-q", "--depth", "1")
        assert "could not read Username" in git("ls-remote", re.sub("git:.*@", "", url), status=128)
        assert re.search(r'change user=anna .* from="127.0.0.1 behind 127.0.0.1:\d+" via=http', server.log.read_text())
