"""client.trust: which certificate a server may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartserver.client.medium import CannotConnect
from smartserver.client.tls_url import parse_tls
from smartserver.client.trust import Trust, fingerprint_known, known_servers, trust, trust_of

PLACE = parse_tls("hpss+tls://Example.org/x")


def test_a_fingerprint_is_known_until_it_is_forgotten(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    assert fingerprint_known("example.org:4155", environment) == ""
    path = trust("Example.org:4155", "SHA256:abc", environment)
    assert path == known_servers(environment) == str(tmp_path / ".config/smartserver/known_servers")
    trust("other.org:1", "SHA256:def", environment)
    assert fingerprint_known("example.ORG:4155", environment) == "SHA256:abc"
    assert trust_of(PLACE, environment) == Trust("SHA256:abc")
    trust("example.org:4155", "SHA256:new", environment)
    assert trust_of(PLACE, environment) == Trust("SHA256:new")
    trust("example.org:4155", "", environment)
    assert trust_of(PLACE, environment) == Trust()
    assert fingerprint_known("other.org:1", environment) == "SHA256:def"
    assert sorted(each.name for each in Path(path).parent.iterdir()) == ["known_servers", "known_servers.lock"]


def test_a_url_undoes_nothing_that_its_user_confirmed(tmp_path: Path) -> None:
    """It may come from a repository."""
    environment = {"HOME": str(tmp_path)}
    place = PLACE._replace(ca="/ours.pem")
    assert trust_of(place, environment) == Trust("", "/ours.pem")
    trust(PLACE.where, "SHA256:abc", environment)
    assert trust_of(place, environment) == Trust("SHA256:abc")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/smartserver/known_servers"
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config/smartserver/known_servers"
    assert fingerprint_known("h:1", {}) == ""
    with pytest.raises(OSError, match="no HOME"):
        trust("h:1", "SHA256:abc", {})


def test_lines_by_hand(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "smartserver").mkdir()
    file = tmp_path / "smartserver/known_servers"
    lines = ["", "# a comment here", "Host SHA256:abc", "[::1]:7 SHA256:def  # mine"]
    file.write_text("\n".join(lines) + "\n")
    assert fingerprint_known("host:4155", environment) == "SHA256:abc"
    assert fingerprint_known("[::1]:7", environment) == "SHA256:def"
    trust("host:4155", "SHA256:new", environment)
    assert file.read_text().splitlines() == [*lines[:2], lines[3], "host:4155 SHA256:new"]


@pytest.mark.parametrize("line", ["host", "host:4155 abc", "host:x SHA256:abc"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    """A server that the user meant would be checked less strictly."""
    (tmp_path / "smartserver").mkdir()
    (tmp_path / "smartserver/known_servers").write_text(f"h:1 SHA256:abc\n{line}\n")
    with pytest.raises(CannotConnect, match=r"known_servers, line 2: expected HOST:PORT SHA256:"):
        fingerprint_known("h:1", {"XDG_CONFIG_HOME": str(tmp_path)})


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "smartserver/known_servers").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        fingerprint_known("h:1", {"XDG_CONFIG_HOME": str(tmp_path)})
