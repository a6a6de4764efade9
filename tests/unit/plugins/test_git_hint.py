"""plugins.git.hint, wants, refspecs: what a command line says. The rows of refs were run with git 2.39."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence

import pytest
from git_conversation import FakeLocal, key
from needs import needs

from smartserver.plugins.git.hint import ANCESTORS, Hint, parse, proc_command_line, ps_command_line, read
from smartserver.plugins.git.refspecs import Refspecs, mapped, matches, meanings
from smartserver.plugins.git.wants import Wants, wants


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/usr/bin/git fetch origin main", Hint("fetch", words=("origin", "main"))),
        ("/usr/libexec/git-core/git-fetch origin", Hint("fetch", words=("origin",))),
        ("git -C /x -c a=b --git-dir=/y --no-pager --work-tree /z push o", Hint("push", words=("o",))),
        ("git push -- -o x", Hint("push", words=("-o", "x"))),
        ("git push -o x origin", Hint("push", frozenset({"-o"}), {"-o": "x"}, ("origin",))),
        ("git push --push-option=x o", Hint("push", frozenset({"--push-option"}), {"--push-option": "x"}, ("o",))),
        ("git push -fd o x", Hint("push", frozenset({"-f", "-d"}), {}, ("o", "x"))),
        ("git push --del o x", Hint("push", frozenset({"--delete"}), {}, ("o", "x"))),
        ("git push --force o", Hint("push", frozenset({"--force"}), {}, ("o",))),
        ("git push --fol --no-fol o", Hint("push", frozenset({"--follow-tags", "--no-follow-tags"}), {}, ("o",))),
        ("git push --unknown o", Hint("push", frozenset({"--unknown"}), {}, ("o",))),
        ("git clone -bmain u d", Hint("clone", frozenset({"-b"}), {"-b": "main"}, ("u", "d"))),
        ("git clone -qb main u", Hint("clone", frozenset({"-q", "-b"}), {"-b": "main"}, ("u",))),
        ("git clone --bra main u", Hint("clone", frozenset({"--branch"}), {"--branch": "main"}, ("u",))),
        ("git clone -b", Hint("clone", frozenset({"-b"}), {"-b": ""})),
        ("git clone --branch", Hint("clone", frozenset({"--branch"}))),
        ("git fetch -", Hint("fetch", words=("-",))),
        ("git remote-hpss origin hpss://h/x", Hint()),
        ("git", Hint()),
        ("git -c", Hint()),
        ("sh -c fetch", Hint()),
        ("", Hint()),
    ],
)
def test_parse(line: str, expected: Hint) -> None:
    assert parse(shlex.split(line)) == expected


@pytest.mark.parametrize(
    ("words", "leases"),
    [
        ("--force-with-lease", ("",)),
        ("--force-w=main:abc --force-with-lease=x", ("main:abc", "x")),
        ("--force-with-lease=x --no-force-with-lease", ()),
        ("--no-force-with-lease --force-with-lease", ("",)),
    ],
)
def test_leases(words: str, leases: tuple[str, ...]) -> None:
    hint = parse(["git", "push", *words.split(), "o"])
    assert (hint.leases, hint.words) == (leases, ("o",))


def test_commands_that_read_refs_alone() -> None:
    lines = ("git ls-remote u", "git remote show origin", "git fetch o a")
    assert [parse(line.split()).refs_only for line in lines] == [True, True, False]


def test_the_nearest_known_command_counts() -> None:
    processes = {
        7: (6, ["git", "remote-hpss", "o", "u"]),
        6: (5, ["git", "fetch", "o"]),
        5: (4, ["git", "pull", "o", "main"]),
        4: (1, ["git", "push"]),
    }
    assert read(processes.get, 7) == Hint("fetch", words=("o",))
    assert read(processes.get, 5) == Hint("push")
    assert read(processes.get, 3) == Hint()


def test_a_process_that_is_gone_and_a_chain_that_is_too_long() -> None:
    deep = {number: (number - 1, ["sh"]) for number in range(1, 50)}
    deep[40] = (39, ["git", "fetch"])
    assert read(deep.get, 40 + ANCESTORS - 1).command == "fetch"
    assert read(deep.get, 40 + ANCESTORS).command == ""
    assert proc_command_line(2**22 + 1) is None
    assert ps_command_line(2**22 + 1) is None


@pytest.mark.parametrize(
    "reader",
    [pytest.param(proc_command_line, marks=needs("/proc")), pytest.param(ps_command_line, marks=needs("ps"))],
)
def test_this_process_is_read(reader: Callable[[int], tuple[int, list[str]] | None]) -> None:
    found = reader(os.getpid())
    assert found is not None
    parent, words = found
    assert parent == os.getppid()
    assert any("py" in word for word in words)


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
        ("git clone --mirror u", {}, Wants(None)),
        ("git clone --no-tags u", {}, Wants((HEADS,))),
        ("git clone -b x u", {}, Wants((HEADS, TAGS, *short(b"x")))),
        ("git clone --single-branch u", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git clone --single-branch -b x u", {}, Wants(short(b"x"), follow=(TAGS,))),
        ("git clone --depth 1 u", {}, Wants((b"HEAD",), follow=(TAGS,))),
        ("git clone --depth 1 --no-single-branch u", {}, Wants((HEADS, TAGS))),
        ("git fetch o", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch --multiple o p", CONFIGURED, Wants((b"refs/heads/*",), follow=(TAGS,))),
        ("git fetch u", {}, Wants((b"HEAD",), follow=(TAGS,))),
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
        ("git push o", {}, Wants(None)),
    ],
)
def test_wants(line: str, settings: Mapping[str, Sequence[bytes]], expected: Wants) -> None:
    assert wants(parse(shlex.split(line)), "o", settings, 20) == expected


def test_ids_are_as_long_as_the_format_makes_them() -> None:
    key = "ab" * 32
    assert wants(Hint("fetch", words=("o", key)), "o", {}, 32).ids == (bytes.fromhex(key),)
    assert wants(Hint("fetch", words=("o", key)), "o", {}, 20).ids == ()


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
