"""smartserver.gateway: users of stock git who have tokens, TLS, and what the logs and metrics say of them."""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from gateways import GatewayServer, Git, new_repository
from scripts import script

from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

RULES = """
[[rules]]
who = ["anna"]
path = "**"
may = "admin"

[[rules]]
who = ["bob"]
path = "rules"
refs = ["refs/heads/bob/*"]
may = "force"

[[rules]]
who = ["bob"]
path = "rules"
may = "read"

[[rules]]
who = ["bob", "anonymous"]
path = "open"
may = "read"
"""


class Place:
    """A server with users."""

    def __init__(self, folder: Path, server: GatewayServer) -> None:
        self.server = server
        self._tokens = TokenChanges(folder / "access.toml")

    def token(self, user: str, *, read_only: bool = False) -> str:
        return self._tokens.create(user, int(time.time()), None, None, read_only=read_only)[0]

    def url(self, user: str, path: str = "project", **scope: bool) -> str:
        return self.server.url(path, f"git:{self.token(user, **scope)}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "access.toml").write_text(RULES)
    metrics = ("--metrics", "127.0.0.1:0")
    with GatewayServer(folder, "--access", str(folder / "access.toml"), *metrics, anonymous="") as server:
        yield Place(folder, server)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return new_repository(tmp_path / "work")


def test_a_token_is_the_password(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna"), "main", "main:other")
    git("commit", "-q", "--amend", "-m", "again")
    git("push", "-q", place.url("anna"), "+main", ":other")
    assert "could not read Username" in git("ls-remote", place.server.url(), status=128)
    git("ls-remote", place.server.url("project", place.token("anna")))  # As the name, too.
    log = place.server.log.read_text()
    assert re.search(
        r'change user=anna by="token \w+" from=127.0.0.1:\d+ via=http path=project ref=refs/heads/main', log
    )
    assert re.search(r'request user=anna by="token \w+" .* via=http path=project verbs=git-receive-pack ', log)


def test_rules_hold_for_each_ref(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna", "rules"), "main")
    git.commit("two")
    said = git("push", place.url("bob", "rules"), "main", "main:bob/a", status=1)
    assert re.search(r"\[new branch\] +main -> bob/a", said)
    assert "the server's access rules allow bob" in said
    assert "the server's access rules allow bob nothing here" in git("ls-remote", place.url("bob"), status=128)


def test_anonymous_users(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna", "open"), "main")
    git("clone", "-q", place.server.url("open"), str(git.folder.parent / "clone"))
    assert "could not read Username" in git("push", place.server.url("open"), "main:x", status=128)
    assert "could not read Username" in git("ls-remote", place.server.url("nowhere"), status=128)


def test_a_token_that_is_not_valid(place: Place, git: Git) -> None:
    assert "Authentication failed" in git("ls-remote", place.server.url("closed", "git:hpss_wrong"), status=128)
    assert "refused log-in from=127.0.0.1:" in place.server.log.read_text()


def test_a_token_that_came_without_encryption(place: Place, git: Git) -> None:
    """A proxy on this machine says so."""
    insecure = ("-c", "http.extraHeader=X-Forwarded-Proto: http", "-c", "http.extraHeader=X-Forwarded-For: 192.0.2.7")
    credentials = base64.b64encode(f"git:{place.token('anna')}".encode()).decode()
    sent = ("-c", f"http.extraHeader=Authorization: Basic {credentials}")
    said = git(*insecure, *sent, "ls-remote", place.server.url(), status=128)
    assert "was sent without encryption" in said
    said = git(*insecure, "ls-remote", place.server.url(), status=128)
    assert "tokens are sent over https:// alone" in said
    assert 'from="192.0.2.7 behind 127.0.0.1:' in place.server.log.read_text()


def test_metrics(place: Place, git: Git) -> None:
    git("ls-remote", place.server.url("open"), status=None)
    found = re.search(r"metrics on (\S+)", place.server.log.read_text())
    assert found is not None
    with urllib.request.urlopen(found[1]) as page:
        said = page.read().decode()
    assert re.search(r'smartserver_requests_total\{outcome="done",verb="git-upload-pack:refs"\} [1-9]', said)


def test_tls(tmp_path: Path, git: Git) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("127.0.0.1")
    options = ("--tls", str(certificate), "--tls-key", str(key), "--require-tls")
    with GatewayServer(tmp_path, *options) as server:
        assert server.scheme == "https"
        git("config", "http.sslCAInfo", str(authority.file))
        git("push", "-q", server.url(), "main")
        clone = str(git.folder.parent / "clone")
        git("-c", f"http.sslCAInfo={authority.file}", "clone", "-q", server.url(), clone)
        said = git("ls-remote", server.url().replace("https", "http"), status=128)
        assert "this server wants https:// in the URL" in said


def test_push_options_and_the_words_of_a_hook(tmp_path: Path, git: Git) -> None:
    hook = script(tmp_path / "check", f"cat >> {tmp_path}/told\nhead -c 10000 /dev/zero | tr '\\0' x\nexit 1")
    rule = '[[rules]]\nwho = ["anonymous"]\npath = "**"\nmay = "admin"\n'
    (tmp_path / "access.toml").write_text(f'{rule}[[hooks]]\npath = "**"\nbefore = ["{hook}"]\n')
    with GatewayServer(tmp_path, "--access", str(tmp_path / "access.toml"), anonymous="") as server:
        said = git("push", "-o", "ci.skip", "-o", "two words", server.url(), "main", status=1)
    assert f"refused by the server's hook check: {'x' * 2048}; and 7,952 bytes more" in said
    assert json.loads((tmp_path / "told").read_text())["options"] == ["ci.skip", "two words"]
