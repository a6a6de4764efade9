"""client.tls_url: URLs of repositories that are reached over TLS."""

from __future__ import annotations

import pytest

from smartserver.client.places import served_by
from smartserver.client.tls_url import TlsLocation, parse_tls
from smartserver.client.url import BadUrl


def test_what_a_url_says() -> None:
    found = parse_tls("hpss+tls://Example.org/a%20b/c/?ca=/etc/ours.pem")
    assert found == TlsLocation("Example.org", 4155, "a b/c", "/etc/ours.pem")
    assert found.where == "Example.org:4155"
    assert found.key == "hpss+tls://example.org:4155/a b/c"
    assert found.query == "?ca=/etc/ours.pem"
    assert found.above == ""
    assert served_by(found) == "hpss+tls://example.org:4155/"
    assert parse_tls("hpss+tls://[::1]:7/x").where == "[::1]:7"
    assert parse_tls("hpss+tls://h/x").query == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hpss+tls://h/x?ca=", "is not ca="),
        ("hpss+tls://h/x?ca=relative.pem", "is not ca="),
        ("hpss+tls://h/x?", "is not ca="),
        ("hpss+tls://h/x?key=/a", "is not ca="),
        ("hpss+tls:///x", "it has no host"),
        ("hpss+tls://me@h/x", "a user or password has no meaning"),
        ("hpss+tls://h:0/x", "is not a port"),
    ],
)
def test_what_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why):
        parse_tls(url)
