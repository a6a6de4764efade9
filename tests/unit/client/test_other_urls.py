"""client.ssh_url, client.store_url, client.tls_url: URLs of repositories behind ssh, in files, and over TLS."""

from __future__ import annotations

import sys

import pytest

from smartserver.client.places import parse_place, path_in_words, served_by
from smartserver.client.ssh_url import SshLocation, parse_ssh
from smartserver.client.store_url import StoreLocation, parse_store
from smartserver.client.tls_url import TlsLocation, parse_tls
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
def test_ssh(url: str, location: SshLocation, key: str) -> None:
    assert parse_ssh(url) == location
    assert location.key == key


@pytest.mark.parametrize(
    ("url", "above"),
    [("hpss+ssh://me@H:22/srv/a", "me@h:22:/srv/"), ("hpss+ssh://[::1]/~/a", "[::1]:~/")],
)
def test_errors_know_on_which_machine_a_path_is(url: str, above: str) -> None:
    assert parse_ssh(url).above == above
    assert path_in_words(parse_ssh(url)) == f"{above.rpartition(':')[2]}a"


def test_what_ssh_is_to_run() -> None:
    """The other machine's shell takes nothing of a URL for a command, and ssh nothing for an option."""
    assert parse_ssh("hpss+ssh://me@h:22/$(x) y/$(x)").command(["ssh"]) == [
        *("ssh", "-T", "-o", "ForwardX11=no", "-p", "22", "-l", "me", "--", "h"),
        "smartserver serve '/$(x) y' --stdio",
    ]
    assert parse_ssh("hpss+ssh://h/~/a").command(["/bin/ssh"])[-3:] == ["--", "h", "smartserver serve . --stdio"]


SFTP, S3, VFS = "hpss+sftp", "hpss+s3", "hpss+vfs"


@pytest.mark.parametrize(
    ("url", "location"),
    [
        (f"{SFTP}://h/srv/a", StoreLocation(SFTP, "h", "srv/", "sftp://h/srv/", "a")),
        (f"{SFTP}://me@H:2222/srv/a/b/", StoreLocation(SFTP, "me@h:2222", "srv/", "sftp://me@h:2222/srv/", "a/b")),
        (f"{SFTP}://h/~/a%20b", StoreLocation(SFTP, "h", "~/", "sftp://h/~/", "a b")),
        (f"{SFTP.upper()}://[::1]/a%20b/c", StoreLocation(SFTP, "[::1]", "a b/", "sftp://[::1]/a%20b/", "c")),
        (
            f"{SFTP}://CORP%5Cme@[fe80::1%25eth0]/srv/a",
            StoreLocation(SFTP, "CORP\\me@[fe80::1%eth0]", "srv/", "sftp://CORP\\me@[fe80::1%eth0]/srv/", "a"),
        ),
        (
            f"{SFTP}://h/srv/a?host-key=SHA256:x/y+z",
            StoreLocation(SFTP, "h", "srv/", "sftp://h/srv/?host-key=SHA256:x/y+z", "a"),
        ),
        (f"{S3}://bucket/a/b%20c", StoreLocation(S3, "bucket", "", "s3://bucket/", "a/b c")),
        (f"{VFS}://h/a", StoreLocation(VFS, "h", "", "vfs://h/", "a")),
        (f"{VFS}://h:7/a/b", StoreLocation(VFS, "h:7", "", "vfs://h:7/", "a/b")),
    ],
)
def test_stores(url: str, location: StoreLocation) -> None:
    assert parse_store(url) == location
    above = location.above.removesuffix(location.query)  # Which is no part of where it is.
    assert parse_store(location.key) == location._replace(above=above)
    assert location.command()[-3:] == ["--stdio", "--", location.above]


def test_nothing_is_loaded_from_where_it_is_started() -> None:
    """A repository somebody cloned may have a module of any name in it."""
    assert parse_store(f"{VFS}://h/a").command()[:4] == [sys.executable, "-P", "-m", "smartserver.cli.main"]


def test_flags_are_told() -> None:
    words = parse_store(f"{VFS}://h/a").command(["hpss", "hpss-ban=vfs:*"])
    assert words[4:] == ["-Dhpss", "-Dhpss-ban=vfs:*", "serve", "--stdio", "--", "vfs://h/"]


def test_tls() -> None:
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
        (f"{SFTP}://h/srv", "its path must have two parts"),
        (f"{SFTP}://-oProxyCommand=x/a/b", "is not the name of a host"),
        (f"{SFTP}://me:secret@h/a/b", "leave out the password"),
        (f"{SFTP}://h/srv/a?key=x", "its query is not host-key=SHA256:... or host-key=any"),
        (f"{SFTP}://h/srv/a?", "its query is not host-key=SHA256:... or host-key=any"),
        (f"{S3}://key:secret@bucket/a", "access keys do not belong"),
        (f"{S3}://bucket:443/a", "leave out the port"),
        (f"{VFS}://h/a?host-key=any", "a query or fragment has no meaning"),
        (f"{VFS}://me@h/a", "leave out the user"),
        (f"{VFS}:///a", "it has no host"),
        ("hpss+tls://h/x?ca=", "is not ca="),
        ("hpss+tls://h/x?ca=relative.pem", "is not ca="),
        ("hpss+tls://h/x?", "is not ca="),
        ("hpss+tls://h/x?key=/a", "is not ca="),
        ("hpss+tls:///x", "it has no host"),
        ("hpss+tls://me@h/x", "a user or password has no meaning"),
        ("hpss+tls://h:0/x", "is not a port"),
    ],
)
def test_bad(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_place(url)
    assert "secret" not in str(caught.value)
    assert why in caught.value.why
