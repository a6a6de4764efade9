"""client.trust: which certificate a server may have."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert [each.name for each in Path(path).parent.iterdir()] == ["known_servers"]


def test_an_authority_in_the_url_is_what_its_user_wants(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    trust(PLACE.where, "SHA256:abc", environment)
    assert trust_of(PLACE._replace(ca="/ours.pem"), environment) == Trust("", "/ours.pem")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/smartserver/known_servers"
    assert known_servers({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config/smartserver/known_servers"
    assert fingerprint_known("h:1", {}) == ""
    with pytest.raises(OSError, match="no HOME"):
        trust("h:1", "SHA256:abc", {})


def test_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "smartserver").mkdir()
    (tmp_path / "smartserver/known_servers").write_bytes(b"\n# three words here\nh:1 SHA256:abc\n\xff\n")
    assert fingerprint_known("h:1", environment) == "SHA256:abc"


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "smartserver/known_servers").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        fingerprint_known("h:1", {"XDG_CONFIG_HOME": str(tmp_path)})
