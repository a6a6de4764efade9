"""client.credentials: which server gets a token, from where, and what is remembered of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from smartserver.client.credentials import NoToken, ServerCredentials, credentials_for, is_private
from smartserver.client.places import parse_place
from smartserver.client.url import TOKEN_PREFIX
from smartserver.server.tokens import PREFIX

HERE = "hpss://localhost/project"
ELSEWHERE = "hpss://192.0.2.7/project"


@dataclass
class Source:
    """A place where a test's user keeps passwords: it has one, or the user knows one."""

    kept: str = ""
    known: str = ""
    did: list[str] = field(default_factory=list)

    def __call__(self, scheme: str, where: str) -> Source:
        self.did.append(f"{scheme} {where}")
        return self

    def stored(self) -> str:
        self.did.append("stored")
        return self.kept

    def ask(self) -> str:
        self.did.append("ask")
        return self.kept or self.known

    def approve(self) -> None:
        self.did.append("approve")

    def reject(self) -> None:
        self.did.append("reject")
        self.kept = ""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "smartserver" / "remotes")


def credentials(url: str, folder: str | None, given: str = "", source: Source | None = None) -> ServerCredentials:
    """`given`: the token in the environment, which names the server of the URL."""
    place = parse_place(url)
    found = credentials_for(place, folder, f"{place.where}={given}" if given else "", source)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ("localhost=hpss_x", "hpss_x"),
        (" LOCALHOST:4155=hpss_x\n", "hpss_x"),
        ("localhost:4156=hpss_x", ""),
        ("example.org=hpss_x", ""),
        ("=hpss_x", ""),
        ("hpss_x", ""),
    ],
)
def test_the_environment_has_one_for_the_server_that_it_names(folder: str, given: str, token: str) -> None:
    """A repository may lead to another, by the URL of a submodule."""
    found = credentials_for(parse_place(HERE), folder, given)
    assert found is not None
    found.approve()
    assert found.token() == token


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("hpss+tls://example.org:4155/", True),
        ("hpss://localhost:4155/", True),
        ("hpss://127.0.0.1:1/", True),
        ("hpss://127.255.1.2:1/", True),
        ("hpss://[::1]:4155/", True),
        ("hpss://[::2]:4155/", False),
        ("hpss://[::ffff:127.0.0.1]:4155/", False),
        ("hpss://example.org:4155/", False),
        ("hpss://127.example.org:4155/", False),
        ("hpss://127.0.0.x:4155/", False),
        ("hpss://127.0.0.999:4155/", False),
        ("hpss://127.0.0.1.example.org:4155/", False),
        ("hpss://localhost.example.org:4155/", False),
        ("hpss://128.0.0.1:4155/", False),
    ],
)
def test_where_nobody_can_read_on_the_way(url: str, private: bool) -> None:
    assert is_private(url) is private


def test_a_server_that_never_asked_gets_none(folder: str) -> None:
    source = Source(kept="hpss_x")
    assert credentials(HERE, folder, "hpss_y").token() == ""
    assert credentials(HERE, folder, "", source).token() == ""
    assert source.did == []


def test_a_server_that_asked_gets_one_from_the_next_command_on(folder: str) -> None:
    first = credentials(HERE, folder, "hpss_x\n")
    assert first.ask() == "hpss_x"
    assert credentials(HERE, folder, "hpss_x").token() == ""
    first.approve()
    assert credentials(HERE, folder, "hpss_x").token() == "hpss_x"
    assert credentials("hpss://LOCALHOST:4155/other", folder, "hpss_x").token() == "hpss_x"
    for other in ("hpss://localhost:4156/project", "hpss://127.0.0.1/project", ELSEWHERE):
        assert credentials(other, folder, "hpss_x").token() == ""
    assert "hpss_x" not in "".join(each.read_text() for each in Path(folder).parent.rglob("*") if each.is_file())


def test_without_a_cache_it_asks_each_time() -> None:
    first = credentials(HERE, None, "hpss_x")
    assert first.ask() == "hpss_x"
    first.approve()
    first.reject()
    assert credentials(HERE, None, "hpss_x").token() == ""


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "smartserver").write_text("a file")
    credentials(HERE, str(tmp_path / "smartserver" / "remotes"), "hpss_x").approve()


@pytest.mark.parametrize(
    ("source", "why"), [(None, "set SMARTSERVER_TOKEN to localhost:4155=TOKEN"), (Source(), "no token was given")]
)
def test_nobody_knows_one(folder: str, source: Source | None, why: str) -> None:
    with pytest.raises(NoToken, match=why):
        credentials(HERE, folder, "", source).ask()


@pytest.mark.parametrize("given", ["hpss_x", "localhost:4156=hpss_x", "localhost"])
def test_one_that_is_for_no_server_or_another_is_named(folder: str, given: str) -> None:
    why = "SMARTSERVER_TOKEN has none for this server: set SMARTSERVER_TOKEN to localhost:4155=TOKEN"
    found = credentials_for(parse_place(HERE), folder, given, Source())
    assert found is not None
    with pytest.raises(NoToken, match=f"^{why}$"):
        found.ask()


@pytest.mark.parametrize("given", ["hpss_\udcff", "hpss_\u00e9", "secret", "xhpss_y"])
def test_what_can_be_no_token_is_not_sent(folder: str, given: str) -> None:
    """Such as the password for another server of the same host."""
    for found in (credentials(HERE, folder, given), credentials(HERE, folder, "", Source(kept=given))):
        found.approve()
        assert found.token() == ""
        with pytest.raises(NoToken, match=r"^the given password is not a token, which begins with hpss_$"):
            found.ask()


def test_a_token_of_the_server_is_one() -> None:
    assert TOKEN_PREFIX == PREFIX


def test_where_others_can_read_it_none_is_sent(folder: str) -> None:
    source = Source(kept="hpss_x")
    for given in ("", "hpss_x"):
        found = credentials(ELSEWHERE, folder, given, source)
        found.approve()
        assert found.token() == ""
        with pytest.raises(NoToken) as none:
            found.ask()
        said = "a token is not sent without encryption: use hpss+tls://192.0.2.7:4155/project"
        assert str(none.value) == said
    assert source.did == []
