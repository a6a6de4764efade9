"""smartserver.client.store_url: what is a URL of a repository in somebody's files, and what serves it."""

from __future__ import annotations

import sys

import pytest

from smartserver.client.store_url import StoreLocation, parse_store
from smartserver.client.url import BadUrl

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
def test_good(url: str, location: StoreLocation) -> None:
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


@pytest.mark.parametrize(
    ("url", "why"),
    [
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
    ],
)
def test_bad(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_store(url)
    assert why in caught.value.why
