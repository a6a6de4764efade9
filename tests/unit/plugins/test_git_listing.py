"""plugins.git.listing: what a push lists, and when it asks first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
from git_local import FakeLocal, key

from smartserver.plugins.git.hint import parse
from smartserver.plugins.git.listing import NO_TIP, Leases, must_ask, removes_others

FETCH = {"remote.o.fetch": [b"+refs/heads/*:refs/remotes/o/*"]}
MAIN, TOPIC, NEW = b"refs/heads/main", b"refs/heads/topic", b"refs/heads/new"
KNOWN = (MAIN, TOPIC, b"refs/tags/v1")


def local(**settings: list[bytes]) -> FakeLocal:
    tips = {
        MAIN: key(2),
        TOPIC: key(3),
        b"refs/remotes/o/main": key(1),
        b"refs/remotes/o/topic": key(3),
        b"refs/tags/light": key(1),
    }
    return FakeLocal(tips, {**FETCH, **{name.replace("_", "."): value for name, value in settings.items()}})


@pytest.mark.parametrize(
    ("line", "unmet", "met"),
    [
        ("git push o main", False, False),
        ("git push o", False, False),
        ("git push --all o", False, False),
        ("git push --mirror o", True, False),
        ("git push --prune o 'refs/heads/*'", True, False),
        ("git push o :", True, False),
        ("git push o :topic", True, False),
        ("git push o +:topic", True, False),
        ("git push o :refs/heads/topic", True, False),
        ("git push -d o topic main", True, False),
        ("git push o :new", True, True),
        ("git push --delete o topic new", True, True),
        ("git push o main:new", False, False),
        ("git push o HEAD:new", False, False),
        ("git push o light:new", False, False),
        ("git push o main~1:new", True, True),
        ("git push o main~1:topic", True, False),
        ("git push o main~1:refs/heads/new", False, False),
    ],
)
def test_must_ask(line: str, unmet: bool, met: bool) -> None:
    hint = parse(shlex.split(line))
    assert must_ask(hint, "o", local(), (), met=False) == unmet
    assert must_ask(hint, "o", local(), KNOWN, met=True) == met


@pytest.mark.parametrize(
    ("line", "settings", "asks"),
    [
        ("git push", {"push.default": [b"matching"]}, True),
        ("git push", {"push.default": [b"simple"]}, False),
        ("git push o main", {"push.default": [b"matching"]}, False),
        ("git push --tags", {"push.default": [b"matching"]}, False),
        ("git push", {"push.default": [b"matching"], "remote.o.push": [b"main"]}, False),
        ("git push", {"remote.o.push": [b"main", b":topic"]}, True),
        ("git push", {"remote.p.push": [b":topic"]}, False),
        ("git push", {"remote.o.mirror": [b"true"]}, True),
        ("git push", {"remote.o.mirror": [b"true", b"no"]}, False),
    ],
)
def test_settings_say_what_is_pushed(line: str, settings: Mapping[str, list[bytes]], asks: bool) -> None:
    here = local()
    here.config.update(settings)
    assert must_ask(parse(shlex.split(line)), "o", here, (), met=False) == asks


def test_removes_others() -> None:
    assert removes_others(parse(["git", "push", "--mirror", "o"]), "o", local())
    assert removes_others(parse(["git", "push", "o"]), "o", local(remote_o_mirror=[b"yes"]))
    assert not removes_others(parse(["git", "push", "o"]), "o", local(remote_p_mirror=[b"yes"]))


@pytest.mark.parametrize(
    ("line", "expected", "settled"),
    [
        ("git push --force-with-lease o main", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o topic", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease o main topic", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o light:topic", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o HEAD", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease --all o", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic o main", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic o topic", {TOPIC: key(3)}, True),
        ("git push --force-with-lease=topic o main topic", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=refs/heads/topic o topic", {TOPIC: key(3)}, True),
        ("git push --force-with-lease=topic:main o topic", {TOPIC: key(2)}, False),
        (f"git push --force-with-lease=topic:{key(9).hex()} o topic", {TOPIC: key(9)}, False),
        ("git push --force-with-lease=new: o main:new", {NEW: NO_TIP}, False),
        ("git push --force-with-lease=main: o main", {MAIN: NO_TIP}, False),
        (f"git push --force-with-lease=main:{'0' * 40} o main", {MAIN: NO_TIP}, False),
        ("git push --force-with-lease=light: o main", {b"refs/tags/light": NO_TIP}, False),
        ("git push --force-with-lease=main:light --force-with-lease o topic", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease=main:light --force-with-lease=main:topic o main", {MAIN: key(1)}, False),
        ("git push --force-with-lease=topic o :topic", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic: o :topic", {TOPIC: NO_TIP}, True),
        ("git push --force-with-lease=topic o --delete topic", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic: o --delete topic", {TOPIC: NO_TIP}, True),
        ("git push --force-with-lease=refs/tags/light:topic o tag light", {b"refs/tags/light": key(3)}, False),
        ("git push --force-with-lease=refs/tags/light:light o tag light", {b"refs/tags/light": key(1)}, True),
        ("git push --force-with-lease=topic:main o @:topic", {TOPIC: key(2)}, True),
        ("git push --force-with-lease=main:topic o 'refs/heads/top*:refs/heads/ma*'", {MAIN: key(3)}, False),
        ("git push --force-with-lease=main:topic o 'refs/heads/to*pic:refs/heads/ma*in'", {MAIN: key(3)}, True),
        ("git push --force-with-lease o '^refs/heads/main' 'refs/heads/*'", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease --tags o", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease=refs/tags/light:light --tags o", {b"refs/tags/light": key(1)}, True),
    ],
)
def test_leased_refs_are_listed_as_expected(line: str, expected: Mapping[bytes, bytes], settled: bool) -> None:
    leases = Leases(parse(shlex.split(line)), "o", local(), (MAIN,))
    assert {name: tip for name, tip in leases.expected.items() if tip or name in expected} == expected
    assert leases.settled == settled


UPSTREAM = {"push.default": [b"upstream"], "branch.main.merge": [TOPIC], "branch.topic.merge": [MAIN]}


@pytest.mark.parametrize(
    ("line", "settings", "settled"),
    [
        ("git push", {}, True),
        ("git push", {"push.default": [b"current"]}, True),
        ("git push", {"push.default": [b"simple", b"upstream"]}, True),  # Of nothing, which is git's to refuse.
        ("git push", UPSTREAM, False),
        ("git push o topic", UPSTREAM, False),
        ("git push o HEAD", UPSTREAM, True),
        ("git push o topic:topic", UPSTREAM, True),
        ("git push", {**UPSTREAM, "push.default": [b"tracking"], "branch.topic.merge": [TOPIC]}, True),
        ("git push", {**UPSTREAM, "branch.topic.merge": [MAIN, TOPIC]}, True),
        ("git push", {"remote.o.push": [b"topic:main"]}, False),
        ("git push", {"remote.o.push": [b"topic"]}, True),
        ("git push", {"remote.o.push": [b"topic", b"+main"]}, False),
        ("git push o topic", {"remote.o.push": [b"topic:main"]}, True),  # For git it is about full names alone.
        ("git push o topic", {"remote.o.push": [b"refs/heads/topic:refs/heads/main"]}, False),
        ("git push o topic", {"remote.o.push": [b"^refs/heads/topic"]}, True),
        ("git push --mirror", {"remote.o.push": [b"topic"]}, True),
        ("git push", {"push.default": [b"matching"]}, False),
        ("git push o :", {}, False),
        ("git push", {"remote.o.push": [b"+:"]}, False),
        ("git push --tags", {"push.default": [b"matching"]}, False),
    ],
)
def test_settings_say_what_is_leased(line: str, settings: Mapping[str, list[bytes]], settled: bool) -> None:
    """HEAD is topic, which is where it was last seen; main is not."""
    here = local()
    here.branch = TOPIC
    here.config.update(settings)
    leases = Leases(parse([*shlex.split(line), "--force-with-lease"]), "o", here, (MAIN, TOPIC))
    assert leases.settled == settled
    here.tips[b"refs/remotes/o/main"] = here.tips[MAIN] = key(3)  # Now every branch is where it was last seen.
    leases = Leases(parse([*shlex.split(line), "--force-with-lease"]), "o", here, (MAIN, TOPIC))
    assert leases.settled or "--tags" in line


def test_of_matching_branches_only_those_that_are_listed_are_pushed() -> None:
    hint = parse(["git", "push", "--force-with-lease=main:", "--force-with-lease=topic", "o", ":"])
    assert not Leases(hint, "o", local(), (MAIN, TOPIC)).settled
    assert Leases(hint, "o", local(), (TOPIC,)).settled
    assert Leases(hint, "o", local(), ()).settled


def test_what_was_never_fetched_is_expected_not_to_be() -> None:
    here = FakeLocal({MAIN: key(2)})
    leases = Leases(parse(["git", "push", "--force-with-lease", "u", "main"]), "u", here, (MAIN, TOPIC))
    assert leases.expected == {MAIN: NO_TIP, TOPIC: NO_TIP}
    assert not leases.settled


def test_no_more_is_listed_where_git_would_delete_it() -> None:
    for option in ("--mirror", "--prune"):
        hint = parse(["git", "push", "--force-with-lease", option, "o"])
        assert Leases(hint, "o", local(), (TOPIC,)).expected.keys() <= {MAIN, TOPIC}
        assert Leases(hint, "o", FakeLocal({b"refs/remotes/o/x": key(1)}, dict(FETCH), None), ()).expected == {}


@pytest.mark.parametrize(
    ("spec", "tracking"),
    [
        (b"refs/heads/main:refs/remotes/o/x", b"refs/remotes/o/x"),
        (b"+refs/heads/m*n:refs/remotes/o/x*", b"refs/remotes/o/xai"),
        (b"refs/heads/main", None),
        (b"^refs/heads/main", None),
        (b"refs/heads/mainmain*:refs/x/*", None),
    ],
)
def test_where_a_ref_is_tracked(spec: bytes, tracking: bytes | None) -> None:
    tips = {MAIN: key(2)} | ({tracking: key(7)} if tracking else {b"refs/remotes/o/main": key(7)})
    here = FakeLocal(tips, {"remote.o.fetch": [spec]})
    leases = Leases(parse(["git", "push", "--force-with-lease=main", "o", "main"]), "o", here, (MAIN,))
    assert leases.expected == {MAIN: key(7) if tracking else NO_TIP}
