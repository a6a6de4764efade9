"""smartserver.client.url: what is a URL of a repository, and what every other text is told."""

from __future__ import annotations

import pytest

from smartserver.client.url import DEFAULT_PORT, BadUrl, Location, parse


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("hpss://example.org/project", "example.org", DEFAULT_PORT, "project"),
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
    assert parse(url) == Location(host, port, path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "does not begin with hpss://"),
        ("example.org/project", "does not begin with hpss://"),
        ("hpss:/example.org/project", "does not begin with hpss://"),
        ("http://example.org/project", "does not begin with hpss://"),
        ("hpss://", "no host"),
        ("hpss:///project", "no host"),
        ("hpss://:4155/project", "no host"),
        ("hpss://user@example.org/a", "a user or password"),
        ("hpss://user:secret@example.org/a", "a user or password"),
        ("hpss://example.org/a/../b?token=secret", ".."),
        ("hpss://[::1/a", "no closing bracket"),
        ("hpss://[::1]7/a", "no closing bracket"),
        ("hpss://h:0/a", "'0' is not a port of 1 to 65535"),
        ("hpss://h:65536/a", "'65536' is not a port"),
        ("hpss://h:" + "9" * 5000 + "/a", "9' is not a port"),
        ("hpss://h:-1/a", "'-1' is not a port"),
        ("hpss://h:http/a", "'http' is not a port"),
        ("hpss://h:\uff14/a", "is not a port"),
        ("hpss://::1/a", "no host"),
        ("hpss://h/a?b", "a query or fragment"),
        ("hpss://h/a#b", "a query or fragment"),
        ("hpss://h/%FF", "its path is not UTF-8"),
        ("hpss://h/caf\udce9", "its path is not UTF-8"),
        ("hpss://caf\udce9/a", "its host is not UTF-8"),
        ("hpss://h/a%", "two hexadecimal digits"),
        ("hpss://h/a%2", "two hexadecimal digits"),
        ("hpss://h/a%zz", "two hexadecimal digits"),
        ("hpss://h/a% 1x", "two hexadecimal digits"),
        ("hpss://h/a%  x", "two hexadecimal digits"),
        ("hpss://h/a%éx", "two hexadecimal digits"),
    ],
)
def test_bad(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match="is not a URL of a repository") as caught:
        parse(url)
    assert why in str(caught.value)
    assert repr(url.replace("secret", "***")) in str(caught.value)


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
