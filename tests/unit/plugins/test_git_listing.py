"""plugins.git.listing: what a push lists, and when it asks first."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

import pytest
from git_conversation import FakeLocal, key

from smartserver.client.updates import RefUpdate
from smartserver.plugins.git.hint import parse
from smartserver.plugins.git.listing import NO_TIP, Leases, conditions, guesses, must_ask
from smartserver.plugins.git.refspecs import Refspecs, meanings
from smartserver.records.model import Tip
from smartserver.verbs.fields import MAX_NAME
from smartserver.verbs.rules import Rule

FETCH = {"remote.o.fetch": [b"+refs/heads/*:refs/remotes/o/*"]}
MAIN, TOPIC, NEW = b"refs/heads/main", b"refs/heads/topic", b"refs/heads/new"
TAG = b"refs/tags/v1"
KNOWN = {MAIN: (Tip(key(2)),), TOPIC: (Tip(key(3)),), TAG: (Tip(key(4), key(2)),)}


def local(**settings: list[bytes]) -> FakeLocal:
    tips = {
        MAIN: key(2),
        TOPIC: key(3),
        b"refs/remotes/o/main": key(1),
        b"refs/remotes/o/topic": key(3),
        b"refs/tags/light": key(1),
    }
    return FakeLocal(tips, {**FETCH, **{name.replace("_", "."): value for name, value in settings.items()}})


def refspecs_of(line: str, here: FakeLocal | None = None) -> Refspecs:
    return Refspecs(parse(shlex.split(line)), "o", here or local())


def leases_of(line: str, here: FakeLocal, known: Collection[bytes], remote: str = "o") -> Leases:
    hint = parse(shlex.split(line))
    return Leases(hint, remote, here, Refspecs(hint, remote, here), known)


@pytest.mark.parametrize(
    ("line", "unmet", "met"),
    [
        ("git push o main", False, False),
        ("git push --follow-tags o main", True, True),
        ("git push o :topic", True, False),
        ("git push o +:topic", True, False),
        ("git push o :refs/heads/topic", False, False),
        ("git push -d o topic main", True, False),
        ("git push -d o tag v1", False, False),
        ("git push o :new", True, True),
        ("git push --delete o topic new", True, True),
        ("git push o main:new", False, False),
        ("git push o main~1:new", True, True),
        ("git push o main~1:topic", True, False),
        ("git push o main~1:refs/heads/new", False, False),
    ],
)
def test_must_ask(line: str, unmet: bool, met: bool) -> None:
    assert must_ask(refspecs_of(line), ()) == unmet
    assert must_ask(refspecs_of(line), KNOWN) == met


def absent(short: bytes, there: bytes) -> list[RefUpdate]:
    """No ref is there of which a short name could be the name too."""
    return [RefUpdate(name, None, expected=NO_TIP) for name in meanings(short) if name != there]


@pytest.mark.parametrize(
    ("line", "pushed", "expected"),
    [
        ("git push o main", MAIN, []),
        ("git push o main:new", NEW, absent(b"new", NEW)),
        ("git push o main:topic", TOPIC, absent(b"topic", TOPIC)),
        (
            "git push o main:v1",
            TAG,
            [*absent(b"v1", TAG), RefUpdate(TAG, key(4), Rule.LEASE, expected=key(4), attributes=key(2))],
        ),
        (
            "git push o :topic",
            TOPIC,
            [*absent(b"topic", TOPIC), RefUpdate(TOPIC, key(3), Rule.LEASE, expected=key(3))],
        ),
        ("git push o main:other", NEW, []),  # Git took it for something else: there is nothing to say of it.
    ],
)
def test_a_short_target_depends_on_other_refs(line: str, pushed: bytes, expected: list[RefUpdate]) -> None:
    refspecs = refspecs_of(line)
    assert conditions(refspecs, guesses(refspecs, KNOWN, {pushed}), KNOWN, ()) == expected


def test_a_lease_proves_that_the_target_exists() -> None:
    refspecs = refspecs_of("git push o :topic")
    asked = conditions(refspecs, guesses(refspecs, KNOWN, {TOPIC}), KNOWN, {TOPIC})
    assert asked
    assert TOPIC not in {update.ref for update in asked}


def test_a_name_that_no_ref_can_have_is_not_asked_for() -> None:
    short = "n" * (MAX_NAME - len("refs/remotes/"))
    refspecs = refspecs_of(f"git push o main:{short}")
    found = guesses(refspecs, KNOWN, {b"refs/heads/" + short.encode()})
    assert max(len(update.ref) for update in conditions(refspecs, found, KNOWN, ())) == MAX_NAME


def test_a_leased_ref_that_is_not_cached_may_change_what_a_short_target_means() -> None:
    here = local()
    here.tips[b"refs/remotes/o/v1"] = key(5)
    assert leases_of("git push --force-with-lease=v1 o :v1", here, KNOWN).must_ask
    assert not leases_of("git push --force-with-lease=main o :v1", here, KNOWN).must_ask
    assert not leases_of("git push --force-with-lease o main:topic", here, KNOWN).must_ask


@pytest.mark.parametrize(
    ("line", "expected", "asks"),
    [
        ("git push --force-with-lease o main", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o topic", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease o light:topic", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease o", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease o HEAD", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease --all o", {MAIN: key(1), TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic o main", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic o topic", {TOPIC: key(3)}, True),
        ("git push --force-with-lease=refs/heads/topic o topic", {TOPIC: key(3)}, True),
        ("git push --force-with-lease=topic:main o topic", {TOPIC: key(2)}, False),
        (f"git push --force-with-lease=topic:{key(9).hex()} o topic", {TOPIC: key(9)}, False),
        ("git push --force-with-lease=new: o main:new", {NEW: NO_TIP}, False),
        ("git push --force-with-lease=main: o main", {MAIN: NO_TIP}, False),
        (f"git push --force-with-lease=main:{'0' * 40} o main", {MAIN: NO_TIP}, False),
        ("git push --force-with-lease=light: o main", {b"refs/tags/light": NO_TIP}, False),
        ("git push --force-with-lease=main:light --force-with-lease o topic", {MAIN: key(1), TOPIC: key(3)}, True),
        ("git push --force-with-lease=main:light --force-with-lease=main:topic o main", {MAIN: key(1)}, False),
        ("git push --force-with-lease=topic o :refs/heads/topic", {TOPIC: key(3)}, False),
        ("git push --force-with-lease=topic: o :refs/heads/topic", {TOPIC: NO_TIP}, True),
        ("git push --force-with-lease=topic o --delete topic", {TOPIC: key(3)}, True),
        ("git push --force-with-lease=topic: o --delete refs/heads/topic", {TOPIC: NO_TIP}, True),
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
def test_leased_refs_are_listed_as_expected(line: str, expected: Mapping[bytes, bytes], asks: bool) -> None:
    leases = leases_of(line, local(), (MAIN,))
    assert {name: tip for name, tip in leases.expected.items() if tip or name in expected} == expected
    assert leases.must_ask == asks


def test_refs_that_git_omits_on_what_their_leases_expect() -> None:
    assert leases_of("git push --force-with-lease o main topic", local(), (MAIN,)).settled == {TOPIC: key(3)}
    assert not leases_of("git push --force-with-lease o main topic", local(), (MAIN,)).must_ask
    assert leases_of("git push --force-with-lease o main +topic", local(), (MAIN,)).must_ask
    assert not leases_of("git push --force-with-lease=main o +main topic", local(), (MAIN,)).must_ask


UPSTREAM = {"push.default": [b"upstream"], "branch.main.merge": [TOPIC], "branch.topic.merge": [MAIN]}


@pytest.mark.parametrize(
    ("line", "settings", "asks"),
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
        ("git push", {"remote.o.push": [b"topic", b"+main"]}, True),
        ("git push o topic", {"remote.o.push": [b"topic:main"]}, True),  # For git it is about full names alone.
        ("git push o topic", {"remote.o.push": [b"refs/heads/topic:refs/heads/main"]}, False),
        ("git push o topic", {"remote.o.push": [b"^refs/heads/topic"]}, True),
        ("git push --tags", {"push.default": [b"matching"]}, False),
    ],
)
def test_settings_say_what_is_leased(line: str, settings: Mapping[str, list[bytes]], asks: bool) -> None:
    """HEAD is topic, which is where it was last seen; main is not."""
    here = local()
    here.branch = TOPIC
    here.config.update(settings)
    leases = leases_of(f"{line} --force-with-lease", here, (MAIN, TOPIC))
    assert leases.must_ask == asks
    here.tips[b"refs/remotes/o/main"] = here.tips[MAIN] = key(3)  # Now every branch is where it was last seen.
    leases = leases_of(f"{line} --force-with-lease", here, (MAIN, TOPIC))
    assert leases.must_ask or "--tags" in line


def test_what_was_never_fetched_is_expected_not_to_be() -> None:
    here = FakeLocal({MAIN: key(2)})
    leases = leases_of("git push --force-with-lease u main", here, (MAIN, TOPIC), "u")
    assert leases.expected == {MAIN: NO_TIP, TOPIC: NO_TIP}
    assert not leases.must_ask
