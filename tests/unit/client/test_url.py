"""client.url, ssh_url, store_url, tls_url, places: what is a URL of a repository, and what every other text is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from smartserver.client.places import (
    SCHEMES,
    behind,
    how_to_serve,
    is_ours,
    login_of,
    parse_place,
    path_in_words,
    served_by,
)
from smartserver.client.ssh_url import SshLocation, parse_ssh
from smartserver.client.store_url import StoreLocation, parse_store
from smartserver.client.tls_url import TlsLocation, parse_tls
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
        ("hpss://h/hpss_mirrors", "hpss://h/hpss_mirrors"),
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


def test_a_server_that_is_started_loads_nothing_from_here_and_is_told_flags() -> None:
    """A repository somebody cloned may have a module of any name in it."""
    assert parse_store(f"{VFS}://h/a").command()[:4] == [sys.executable, "-P", "-m", "smartserver.cli.main"]
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
def test_bad_urls_of_other_schemes(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_place(url)
    assert "secret" not in str(caught.value)
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("url", "served", "store"),
    [
        ("hpss://h/a/b", "hpss://h:4155/", ""),
        ("hpss://[::1]/a/b", "hpss://[::1]:4155/", ""),
        ("hpss+ssh://h/srv/a", "hpss+ssh://h/srv/", ""),
        ("hpss+sftp://me@h/srv/a", "hpss+sftp://me@h/srv/", "sftp://me@h/srv/"),
        ("hpss+s3://bucket/a", "hpss+s3://bucket/", "s3://bucket/"),
        ("hpss+vfs://h/a/b", "hpss+vfs://h/", "vfs://h/"),
    ],
)
def test_what_a_server_serves_and_a_process_of_this_machine_works_on(url: str, served: str, store: str) -> None:
    assert behind(parse_place(url)) == store
    assert served_by(parse_place(url)) == served
    assert served_by(parse_place(f"{served}x")) == served
    assert f"run `brz push {served}ANOTHER-PATH` in it" in how_to_serve(parse_place(url), "brz push")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_read_by_one_who_knows_it(scheme: str) -> None:
    for url in (f"{scheme}://h/a/b", f"{scheme.upper()}://h/a/b"):
        assert parse_place(url).key.startswith(f"{scheme}://h")
        assert is_ours(url)


@pytest.mark.parametrize("url", ["sftp://h/srv/a", "http://h/a", "hpss+http://h/a", "/srv/a", ""])
def test_what_is_none(url: str) -> None:
    assert not is_ours(url)
    with pytest.raises(BadUrl, match="does not begin with hpss://"):
        parse_place(url)


def test_plain_hpss_loads_nothing_of_the_others() -> None:
    script = (
        "import sys; from smartserver.client.places import parse_place; parse_place('hpss://h/a'); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {f"smartserver.client.{name}" for name in ("ssh_url", "store_url", "media.pipe")} & set(loaded)


def test_a_bucket_is_kept_apart_by_all_that_its_library_reads() -> None:
    bucket = parse_place("hpss+s3://bucket/a")
    one = login_of(bucket, {"AWS_ENDPOINT": "http://one", "HOME": "/h"}, list)
    assert one == login_of(bucket, {"AWS_ENDPOINT": "http://one", "HOME": "/other"}, list)
    assert one != login_of(bucket, {"AWS_ENDPOINT": "http://two", "HOME": "/h"}, list)
