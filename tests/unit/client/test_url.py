"""smartserver.client.url: what is a URL of a repository, and what every other text is told."""

from __future__ import annotations

import pytest

from smartserver.client.places import parse_place
from smartserver.client.url import DEFAULT_PORT, BadUrl, TcpLocation, parse, without_secrets


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("HPSS://example.org/project", "example.org", DEFAULT_PORT, "project"),
        ("hpss://example.org:8000/a/b.git", "example.org", 8000, "a/b.git"),
        ("hpss://example.org:65535/a", "example.org", 65535, "a"),
        ("hpss://example.org:1/a", "example.org", 1, "a"),
        ("hpss://example.org:/a", "example.org", DEFAULT_PORT, "a"),
        ("hpss://example.org", "example.org", DEFAULT_PORT, ""),
        ("hpss://example.org/", "example.org", DEFAULT_PORT, ""),
        ("hpss://example.org//a/", "example.org", DEFAULT_PORT, "a"),
        ("hpss://[::1]/a", "::1", DEFAULT_PORT, "a"),
        ("hpss://[::1]:7/a", "::1", 7, "a"),
        ("hpss://[fe80::1%25eth0]:7/a", "fe80::1%eth0", 7, "a"),
        ("hpss://[fe80::1%eth0]/a", "fe80::1%eth0", DEFAULT_PORT, "a"),
        ("hpss://[fe80::1%25]/a", "fe80::1%25", DEFAULT_PORT, "a"),
        ("hpss://h/with%20blank%3F%23%25", "h", DEFAULT_PORT, "with blank?#%"),
        ("hpss://h/gr%C3%B6%c3%9fer", "h", DEFAULT_PORT, "größer"),
        ("hpss://h/größer", "h", DEFAULT_PORT, "größer"),
        ("hpss://h/a:b@c", "h", DEFAULT_PORT, "a:b@c"),
    ],
)
def test_good(url: str, host: str, port: int, path: str) -> None:
    assert parse(url) == TcpLocation(host, port, path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "does not begin with hpss://"),
        ("hpss:/example.org/project", "does not begin with hpss://"),
        ("hpss:///project", "no host"),
        ("hpss://:4155/project", "no host"),
        ("hpss://user:secret@example.org/a", "a user or password"),
        ("hpss://example.org/a/../b?token=secret", ".."),
        ("hpss://[::1/a", "no closing bracket"),
        ("hpss://[::1]7/a", "no closing bracket"),
        ("hpss://h:0/a", "'0' is not a port of 1 to 65535"),
        ("hpss://h:65536/a", "'65536' is not a port"),
        ("hpss://h:" + "9" * 5000 + "/a", "9' is not a port"),
        ("hpss://h:http/a", "'http' is not a port"),
        ("hpss://h:\uff14/a", "is not a port"),
        ("hpss://::1/a", "no host"),
        ("hpss://h/a?b", "a query or fragment"),
        ("hpss://h/a#b", "a query or fragment"),
        ("hpss://h/%FF", "its path is not UTF-8"),
        ("hpss://h/caf\udce9", "its path is not UTF-8"),
        ("hpss://caf\udce9/a", "its host is not UTF-8"),
        ("hpss://h\nother/a", "its host has a blank or a control character"),
        ("hpss://h SHA256:x/a", "its host has a blank or a control character"),
        ("hpss://h/a%zz", "two hexadecimal digits"),
        ("hpss://h/a% 1x", "two hexadecimal digits"),
        ("hpss://h/a%éx", "two hexadecimal digits"),
    ],
)
def test_bad(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match="is not a URL of a repository") as caught:
        parse(url)
    assert why in str(caught.value)
    assert repr(url.replace("secret", "***")) in str(caught.value)


TOKEN = "hpss_" + "tokEn-_0" * 5


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("hpss://me:pass@h/a", "hpss://me:***@h/a"),
        ("hpss+ssh://me:pa/ss@h/srv/a@v1", "hpss+ssh://me:***@h/srv/a@v1"),
        ("hpss+ssh://me:pa ss@h/srv/a", "hpss+ssh://me:***@h/srv/a"),
        ("hpss://me:12@h/a", "hpss://me:***@h/a"),
        ("hpss://us'er:pass@h/a", "hpss://us'er:***@h/a"),
        ("hpss://me:12?pass@h/a", "hpss://me:***@h/a"),
        ("hpss://h:12/a@v1:2", "hpss://h:12/a@v1:2"),
        ("hpss://[::1]:12/a@v1", "hpss://[::1]:12/a@v1"),
        ("hpss+tls://h/a?token=x&ca=/y&z=x", "hpss+tls://h/a?token=***&ca=/y&z=***"),
        (f"hpss+tls://{TOKEN}@h/a", "hpss+tls://hpss_***@h/a"),
        (f"hpss+tls://h/a?{TOKEN}", "hpss+tls://h/a?hpss_***"),
        (f"hpss+tls://h:{TOKEN}/a", "hpss+tls://h:hpss_***/a"),
        ("hpss://h/hpss_shadows", "hpss://h/hpss_shadows"),
    ],
)
def test_no_password_and_no_token_is_shown(url: str, shown: str) -> None:
    assert str(BadUrl(url, "x")) == f"{shown!r} is not a URL of a repository: x"
    if " " not in url:
        assert without_secrets(f"{url} '{url}' is wrong") == f"{shown} '{shown}' is wrong"


@pytest.mark.parametrize(
    "url",
    [
        f"hpss+tls://h/a?token={TOKEN}", f"hpss+sftp://h/a/b?key={TOKEN}", f"hpss+ssh://%{TOKEN}@h/a/b",
        f"hpss+ssh://me@${TOKEN}/a/b", f"hpss://h:{TOKEN}/a",
    ],
)  # fmt: skip
def test_why_a_url_is_wrong_does_not_show_it_either(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_place(url)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key", "where"),
    [
        ("hpss://Example.ORG/Project/", "hpss://example.org:4155/Project", "Example.ORG:4155"),
        ("hpss://example.org:4155/Project", "hpss://example.org:4155/Project", "example.org:4155"),
        ("hpss://[::1]:7/a", "hpss://[::1]:7/a", "[::1]:7"),
    ],
)
def test_one_spelling_for_what_is_kept_and_for_messages(url: str, key: str, where: str) -> None:
    location = parse(url)
    assert location.key == key
    assert location.where == where
