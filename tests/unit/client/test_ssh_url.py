"""smartserver.client.ssh_url: what is a URL of a repository behind ssh, and what is run there."""

from __future__ import annotations

import pytest

from smartserver.client.places import path_in_words
from smartserver.client.ssh_url import SshLocation, parse_ssh
from smartserver.client.url import BadUrl


@pytest.mark.parametrize(
    ("url", "location", "key"),
    [
        ("hpss+ssh://h/srv/a", SshLocation("", "h", 0, "/srv", "a"), "hpss+ssh://h/srv/a"),
        ("hpss+ssh://me@H:22/srv/a/", SshLocation("me", "H", 22, "/srv", "a"), "hpss+ssh://me@h:22/srv/a"),
        ("HPSS+SSH://h/~/a%20b", SshLocation("", "h", 0, ".", "a b"), "hpss+ssh://h/~/a b"),
        ("hpss+ssh://h/~", SshLocation("", "h", 0, ".", ""), "hpss+ssh://h/~/"),
        ("hpss+ssh://[::1]/a/b/c", SshLocation("", "::1", 0, "/a", "b/c"), "hpss+ssh://[::1]/a/b/c"),
        ("hpss+ssh://[::1]:7/a/b", SshLocation("", "::1", 7, "/a", "b"), "hpss+ssh://[::1]:7/a/b"),
        (
            "hpss+ssh://[fe80::1%25eth0]/a/b",
            SshLocation("", "fe80::1%eth0", 0, "/a", "b"),
            "hpss+ssh://[fe80::1%eth0]/a/b",
        ),
        *[
            (
                f"hpss+ssh://{user}@h/a/b",
                SshLocation("me@corp.example", "h", 0, "/a", "b"),
                "hpss+ssh://me@corp.example@h/a/b",
            )
            for user in ("me@corp.example", "me%40corp.example")
        ],
        *[
            (f"hpss+ssh://{user}@h/a/b", SshLocation("CORP\\me", "h", 0, "/a", "b"), "hpss+ssh://CORP\\me@h/a/b")
            for user in ("CORP\\me", "CORP%5Cme")
        ],
    ],
)
def test_good(url: str, location: SshLocation, key: str) -> None:
    assert parse_ssh(url) == location
    assert location.key == key


@pytest.mark.parametrize(
    ("url", "above"),
    [("hpss+ssh://me@H:22/srv/a", "me@h:22:/srv/"), ("hpss+ssh://[::1]/~/a", "[::1]:~/")],
)
def test_errors_know_on_which_machine_a_path_is(url: str, above: str) -> None:
    assert parse_ssh(url).above == above
    assert path_in_words(parse_ssh(url)) == f"{above.rpartition(':')[2]}a"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("hpss://h/a", "does not begin with hpss+ssh://"),
        ("hpss+ssh:///a", "it has no host"),
        ("hpss+ssh://h/srv", "its path must have two parts"),
        ("hpss+ssh://me:secret@h/a", "leave out the password"),
        ("hpss+ssh://@h/a", "'' is not the name of a user"),
        ("hpss+ssh://-oProxyCommand=x@h/a", "is not the name of a user"),
        ("hpss+ssh://a b@h/a", "'a b' is not the name of a user"),
        ("hpss+ssh://%2DoProxyCommand=x@h/a", "is not the name of a user"),
        ("hpss+ssh://me%5C@h/a", "'me\\\\' is not the name of a user"),
        ("hpss+ssh://a%20b@h/a", "'a b' is not the name of a user"),
        ("hpss+ssh://a%2@h/a", "'a%2' is not the name of a user"),
        ("hpss+ssh://-oProxyCommand=x/a", "'-oProxyCommand=x' is not the name of a host"),
        ("hpss+ssh://$(touch)/srv/a", "'$(touch)' is not the name of a host"),
        ("hpss+ssh://[::1`id`]/srv/a", "'::1`id`' is not the name of a host"),
        ("hpss+ssh://h:0/a", "'0' is not a port of 1 to 65535"),
        ("hpss+ssh://h/%FF", "its path is not UTF-8"),
    ],
)
def test_bad(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_ssh(url)
    assert str(caught.value).startswith(f"{url.replace('secret', '***')!r} is not a URL of a repository: ")
    assert why in caught.value.why


def test_what_is_run() -> None:
    """The other machine's shell takes nothing of a URL for a command, and ssh nothing for an option."""
    assert parse_ssh("hpss+ssh://me@h:22/$(x) y/$(x)").command(["ssh"]) == [
        *("ssh", "-T", "-o", "ForwardX11=no", "-p", "22", "-l", "me", "--", "h"),
        "smartserver serve '/$(x) y' --stdio",
    ]
    assert parse_ssh("hpss+ssh://h/~/a").command(["/bin/ssh"])[-3:] == ["--", "h", "smartserver serve . --stdio"]
