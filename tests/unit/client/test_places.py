"""smartserver.client.places: any URL of ours, and what carries the bytes to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from smartserver.client.places import SCHEMES, behind, how_to_serve, is_ours, login_of, parse_place, served_by
from smartserver.client.url import BadUrl


@pytest.mark.parametrize(
    ("url", "served"),
    [
        ("hpss://h/a/b", "hpss://h:4155/"),
        ("hpss://[::1]/a/b", "hpss://[::1]:4155/"),
        ("hpss+ssh://h/srv/a", "hpss+ssh://h/srv/"),
        ("hpss+sftp://me@h/srv/a", "hpss+sftp://me@h/srv/"),
        ("hpss+vfs://h/a/b", "hpss+vfs://h/"),
    ],
)
def test_what_a_server_serves(url: str, served: str) -> None:
    assert served_by(parse_place(url)) == served
    assert served_by(parse_place(f"{served}x")) == served
    assert f"run `brz push {served}ANOTHER-PATH` in it" in how_to_serve(parse_place(url), "brz push")


@pytest.mark.parametrize(
    ("url", "store"),
    [
        ("hpss://h/a", ""),
        ("hpss+ssh://h/srv/a", ""),
        ("hpss+sftp://h/srv/a", "sftp://h/srv/"),
        ("hpss+s3://bucket/a", "s3://bucket/"),
        ("hpss+vfs://h/a", "vfs://h/"),
    ],
)
def test_what_a_process_of_this_machine_works_on(url: str, store: str) -> None:
    assert behind(parse_place(url)) == store


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
