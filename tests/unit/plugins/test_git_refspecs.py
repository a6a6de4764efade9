"""plugins.git.refspecs: git's rules of what refspecs mean. The rows that name refs were run with git 2.39."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
from git_local import FakeLocal, key

from smartserver.plugins.git.hint import parse
from smartserver.plugins.git.refspecs import Refspecs, mapped, matches, meanings

MAIN, TAG = b"refs/heads/main", b"refs/tags/v1"


def refspecs(line: str, settings: Mapping[str, list[bytes]] = {}) -> Refspecs:
    local = FakeLocal({MAIN: key(1), TAG: key(2), b"refs/remotes/o/main": key(1)}, dict(settings))
    return Refspecs(parse(shlex.split(line)), "o", local)


@pytest.mark.parametrize(
    ("short", "refs", "found"),
    [
        (b"x", [], []),
        (b"x", [b"refs/heads/x"], [b"refs/heads/x"]),
        (b"x", [b"refs/heads/x", b"refs/tags/x"], [b"refs/tags/x", b"refs/heads/x"]),
        (b"x", [b"refs/heads/y/x", b"refs/x/x"], []),
        (b"heads/x", [b"refs/heads/x"], [b"refs/heads/x"]),
        (b"o/x", [b"refs/remotes/o/x"], [b"refs/remotes/o/x"]),
        (b"o", [b"refs/remotes/o/HEAD"], [b"refs/remotes/o/HEAD"]),
        (b"x", [b"refs/remotes/x", b"refs/remotes/x/HEAD"], [b"refs/remotes/x", b"refs/remotes/x/HEAD"]),
        (b"x", [b"refs/remotes/x", b"refs/heads/x"], [b"refs/heads/x"]),
        (b"remotes/x", [b"refs/remotes/x", b"refs/heads/remotes/x"], [b"refs/remotes/x", b"refs/heads/remotes/x"]),
    ],
)
def test_what_a_short_name_matches(short: bytes, refs: list[bytes], found: list[bytes]) -> None:
    assert matches(short, refs) == found
    assert set(found) <= set(meanings(short))


@pytest.mark.parametrize(
    ("source", "refs", "target"),
    [
        (b"main", [], b"refs/heads/x"),
        (b"HEAD", [], b"refs/heads/x"),
        (b"@", [], b"refs/heads/x"),
        (b"v1", [], b"refs/tags/x"),
        (b"o/main", [], b""),
        (b"main~1", [], b""),
        (b"", [], b""),
        (b"main", [b"refs/tags/x"], b"refs/tags/x"),
        (b"main~1", [b"refs/heads/x"], b"refs/heads/x"),
        (b"", [b"refs/heads/x"], b"refs/heads/x"),
        (b"", [b"refs/heads/x", b"refs/tags/x"], b""),
        (b"main", [b"refs/heads/x", b"refs/tags/x"], b""),
    ],
)
def test_the_target_of_a_short_name(source: bytes, refs: list[bytes], target: bytes) -> None:
    assert refspecs("git push o").target(source, b"x", refs) == target


def test_a_detached_head_has_no_kind() -> None:
    local = FakeLocal({MAIN: key(1)}, branch=None)
    assert Refspecs(parse(["git", "push", "o"]), "o", local).target(b"HEAD", b"x", []) == b""


@pytest.mark.parametrize(
    ("line", "settings", "compares"),
    [
        ("git push o", {}, False),
        ("git push --all o", {}, False),
        ("git push --mirror o", {}, True),
        ("git push --prune o 'refs/heads/*'", {}, True),
        ("git push o :", {}, True),
        ("git push o +:", {}, True),
        ("git push o :x", {}, False),
        ("git push", {"push.default": [b"matching"]}, True),
        ("git push", {"push.default": [b"simple"]}, False),
        ("git push o main", {"push.default": [b"matching"]}, False),
        ("git push --tags", {"push.default": [b"matching"]}, False),
        ("git push", {"push.default": [b"matching"], "remote.o.push": [b"main"]}, False),
        ("git push", {"remote.o.push": [b"main", b"+:"]}, True),
        ("git push o main", {"remote.o.push": [b":"]}, False),
        ("git push --all o", {"remote.o.push": [b":"]}, False),
        ("git push", {"remote.o.mirror": [b"true"]}, True),
        ("git push", {"remote.o.mirror": [b"true", b"no"]}, False),
        ("git push", {"remote.p.mirror": [b"true"]}, False),
        ("git push --follow-tags o", {}, True),
        ("git push o", {"push.followtags": [b"true"]}, True),
        ("git push o", {"push.followtags": [b"true", b"false"]}, False),
        ("git push --no-follow-tags o", {"push.followtags": [b"true"]}, False),
        ("git push --no-follow-tags --follow-tags o", {}, True),
    ],
)
def test_where_git_compares_all_refs(line: str, settings: Mapping[str, list[bytes]], compares: bool) -> None:
    assert refspecs(line, settings).compares_all == compares


def test_without_tags_none_is_followed() -> None:
    local = FakeLocal({MAIN: key(1)})
    assert not Refspecs(parse(["git", "push", "--follow-tags", "o"]), "o", local).compares_all


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("git push o main +main:x :y z:refs/heads/z 'refs/heads/*:x/*'", [(b"main", b"x"), (b"", b"y")]),
        ("git push o tag v1", []),
        ("git push -d o x tag v1", [(b"", b"x")]),
    ],
)
def test_short_targets(line: str, short: list[tuple[bytes, bytes]]) -> None:
    assert refspecs(line).short == short


def test_settings_have_short_targets_too() -> None:
    settings = {"remote.o.push": [b"refs/heads/main:x"]}
    assert refspecs("git push o", settings).short == refspecs("git push o main", settings).short
    assert refspecs("git push o", settings).short == [(MAIN, b"x")]
    upstream = {"push.default": [b"upstream"], "branch.main.merge": [b"x"]}
    assert refspecs("git push o main", upstream).short == [(b"main", b"x")]
    assert refspecs("git push --tags o", settings).short == []


@pytest.mark.parametrize(
    ("name", "source", "target", "found"),
    [
        (MAIN, b"refs/heads/*", b"refs/x/*", b"refs/x/main"),
        (MAIN, b"refs/heads/m*n", b"refs/x*", b"refs/xai"),
        (MAIN, b"refs/heads/mainmain*", b"refs/x/*", None),
        (MAIN, MAIN, b"refs/x", b"refs/x"),
        (MAIN, MAIN, b"", None),
        (MAIN, b"^refs/heads/main", b"refs/x", None),
    ],
)
def test_mapped(name: bytes, source: bytes, target: bytes, found: bytes | None) -> None:
    assert mapped(name, source, target) == found
