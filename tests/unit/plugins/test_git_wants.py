"""plugins.git.wants: what one pull must bring."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import pytest

from smartserver.plugins.git.hint import Hint, parse
from smartserver.plugins.git.wants import Wants, wants

HEADS = b"refs/heads/"
TAGS = b"refs/tags/"
KEY = "0123456789" * 4
CONFIGURED = {"remote.o.fetch": [b"+refs/heads/*:refs/remotes/o/*"]}


def short(name: bytes) -> tuple[bytes, ...]:
    return (b"refs/" + name, TAGS + name, HEADS + name)


@pytest.mark.parametrize(
    ("line", "settings", "expected"),
    [
        ("git clone u", {}, Wants((HEADS, TAGS))),
        ("git clone --bare u", {}, Wants((HEADS, TAGS))),
        ("git clone --mirror u", {}, Wants(None)),
        ("git clone --no-tags u", {}, Wants((HEADS,))),
        ("git clone -b x u", {}, Wants((HEADS, TAGS, *short(b"x")))),
        ("git clone --single-branch u", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git clone --single-branch --no-tags u", {}, Wants((b"HEAD",))),
        ("git clone --single-branch -b x u", {}, Wants(short(b"x"), follow=(TAGS,))),
        ("git clone --depth 1 u", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git clone --depth 1 --no-single-branch u", {}, Wants((HEADS, TAGS))),
        ("git fetch o", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch --all", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch --multiple o p", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch u", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git fetch o HEAD", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git fetch o x", {}, Wants(short(b"x"), follow=(TAGS,))),
        ("git fetch o +x:y", {}, Wants(short(b"x"), follow=(TAGS,))),
        ("git fetch o :y", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git fetch o refs/heads/x", {}, Wants((HEADS + b"x",), follow=(TAGS,))),
        ("git fetch o refs/heads/x refs/heads/x", {}, Wants((HEADS + b"x",), follow=(TAGS,))),
        ("git fetch o refs/heads/a*b:refs/x/a*b", {}, Wants((HEADS + b"a*",), follow=(TAGS,))),
        ("git fetch o ^refs/heads/x refs/heads/y", {}, Wants((HEADS + b"y",), follow=(TAGS,))),
        ("git fetch o tag v1", {}, Wants((TAGS + b"v1",), follow=(TAGS,))),
        ("git fetch o tag", {}, Wants(short(b"tag"), follow=(TAGS,))),
        (f"git fetch o {KEY}", {}, Wants((), (bytes.fromhex(KEY),), (TAGS,))),
        (f"git fetch o {'x' * 40}", {}, Wants(short(b"x" * 40), follow=(TAGS,))),
        (f"git fetch o {KEY}00", {}, Wants(short(KEY.encode() + b"00"), follow=(TAGS,))),
        ("git fetch --no-tags o x", {}, Wants(short(b"x"))),
        ("git fetch -n o x", {}, Wants(short(b"x"))),
        ("git fetch --tags o x", {}, Wants((*short(b"x"), TAGS))),
        ("git fetch -t o", CONFIGURED, Wants((b"refs/heads/*", TAGS))),
        ("git fetch o x", {"remote.o.tagopt": [b"--no-tags"]}, Wants(short(b"x"))),
        ("git fetch o x", {"remote.o.tagopt": [b"--no-tags", b"--tags"]}, Wants((*short(b"x"), TAGS))),
        ("git fetch o x", {"remote.p.tagopt": [b"--no-tags"]}, Wants(short(b"x"), follow=(TAGS,))),
        ("git fetch o refs/heads/\udcff", {}, Wants((HEADS + b"\xff",), follow=(TAGS,))),
        ("git archive", {}, Wants(None)),
        ("", CONFIGURED, Wants(None)),
        ("git push o", {}, Wants(None)),
    ],
)
def test_wants(line: str, settings: Mapping[str, Sequence[bytes]], expected: Wants) -> None:
    assert wants(parse(shlex.split(line)), "o", settings, 20) == expected


def test_ids_are_as_long_as_the_format_makes_them() -> None:
    key = "ab" * 32
    assert wants(Hint("fetch", words=("o", key)), "o", {}, 32).ids == (bytes.fromhex(key),)
    assert wants(Hint("fetch", words=("o", key)), "o", {}, 20).ids == ()
