"""plugins.git.push, plugins.git.listing: what a push lists and asks of the remote, when it asks first, and what git is
told of it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

import pytest
from git_conversation import MAIN, TOPIC, Conversation, FakeLocal, FakeRemote, key, local_with

from smartserver.client.push import PushRequest
from smartserver.client.updates import Outcome, PushOutcome, RefUpdate, UpdateOutcome
from smartserver.errors import (
    AccessDenied,
    DivergedBranches,
    HeadBranch,
    NotDone,
    StaleLease,
)
from smartserver.plugins.git.hint import parse
from smartserver.plugins.git.listing import NO_TIP, Leases, conditions, guesses, must_ask
from smartserver.plugins.git.push import NOT_A_COMMIT
from smartserver.plugins.git.refspecs import Refspecs, meanings
from smartserver.records.model import Tip
from smartserver.vcs.git.objects import BLOB, TAG
from smartserver.verbs.fields import MAX_NAME
from smartserver.verbs.rules import Rule
from transports.errors import CodedError


def test_rules_of_refs_with_a_lease_and_the_target_of_a_tag() -> None:
    """`interop/git_rows.py` has the other rules."""
    here = local_with(main=key(1))
    here.tips[b"refs/tags/v1"], here.objects[key(4)], here.targets[key(4)] = key(4), TAG, key(1)
    leased = "refs/heads/leased"
    remote = FakeRemote({leased.encode(): key(8)})
    lines = [
        "list for-push",
        f"option cas {leased}:{key(8).hex()}",
        f"push refs/heads/main:{leased}",
        f"push +refs/heads/main:{leased}",
        f"push :{leased}",
        "push :refs/heads/gone",
        "push refs/tags/v1:refs/tags/v1",
    ]
    Conversation("\n".join([*lines, "", ""]), remote, here).run()
    assert remote.pushed == [
        RefUpdate(leased.encode(), key(1), Rule.LEASE, expected=key(8)),
        RefUpdate(leased.encode(), key(1), Rule.FORCE),
        RefUpdate(leased.encode(), None, expected=key(8)),
        RefUpdate(b"refs/heads/gone", None),
        RefUpdate(b"refs/tags/v1", key(4), Rule.NEW, attributes=key(1)),
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AccessDenied("write", "this is\nread-only"), "not allowed to write: this is read-only"),
        (AccessDenied("write", "\x1b[2Jno \udcff"), "not allowed to write: [2Jno"),
    ],
)
def test_refusals_are_said_in_words_git_knows(error: CodedError, words: str) -> None:
    """Further ones are in `interop/git_rows.py`."""
    update = RefUpdate(MAIN, key(1))
    remote = FakeRemote({}, known=True, answers=[UpdateOutcome(update, Outcome.REFUSED, error=error)])
    lines = Conversation("push refs/heads/main:refs/heads/main\n\n", remote, local_with(main=key(1))).run()
    assert lines == [f"error refs/heads/main {words}", ""]


def test_a_path_in_a_refusal_ends_no_line() -> None:
    """That of a submodule's URL may be anybody's."""
    refused = UpdateOutcome(RefUpdate(MAIN, None), Outcome.REFUSED, error=HeadBranch(MAIN))
    remote = FakeRemote({}, known=True, answers=[refused])
    lines = Conversation("push :refs/heads/main\n\n", remote, local_with(), path="x\nok refs/heads/main").run()
    assert lines[1:] == [""]
    assert "`smartserver config hpss://h:1/x ok refs/heads/main head ANOTHER-BRANCH`" in lines[0]


@pytest.mark.parametrize(
    ("rule", "ref", "related", "forced"),
    [
        (Rule.FF, MAIN, True, False),
        (Rule.FF, MAIN, False, False),
        (Rule.FORCE, MAIN, True, False),
        (Rule.FORCE, MAIN, False, True),
        (Rule.LEASE, MAIN, False, True),
        (Rule.FORCE, b"refs/tags/v1", True, True),
    ],
)
def test_success_tells_old_and_new(rule: Rule, ref: bytes, related: bool, forced: bool) -> None:
    here = local_with(main=key(1))
    here.ancestors = {(key(7), key(1))} if related else set()
    remote = FakeRemote({}, known=True, answers=[UpdateOutcome(RefUpdate(ref, key(1), rule), Outcome.DONE, key(7))])
    lines = Conversation("push refs/heads/main:refs/heads/x\n\n", remote, here).run()
    told = [f"ok {ref.decode()}", f"option old-oid {key(7).hex()}", f"option new-oid {key(1).hex()}"]
    assert lines == [*told, *(["option forced-update"] if forced else []), ""]


class ServerOf(FakeRemote):
    """A server that decides on its own refs, which are not those that are cached; they may change after a push."""

    def __init__(self, cached: Mapping[bytes, bytes], *refs: Mapping[bytes, bytes], diverged: bytes = b"") -> None:
        super().__init__(cached, known=True)
        self._refs, *self._later = refs
        self._diverged = diverged
        self.attempts: list[PushRequest] = []

    def push(self, request: PushRequest) -> PushOutcome:
        self.attempts.append(request)
        self._learn()
        errors = [self._error(update) for update in request.updates]
        if request.atomic and any(errors):
            errors = [error or NotDone() for error in errors]
        outcomes = [Outcome.REFUSED if error else Outcome.DONE for error in errors]
        if self._later:
            self._refs = self._later.pop(0)
        return PushOutcome([*map(UpdateOutcome, request.updates, outcomes, [b""] * len(errors), errors)], [])

    def _error(self, update: RefUpdate) -> CodedError | None:
        actual = (self._refs or {}).get(update.ref, b"")
        if update.expected is not None and update.expected != actual:
            return StaleLease(update.ref, update.expected, actual)
        return DivergedBranches(update.ref, key(9)) if update.ref == self._diverged else None


BRANCH_X, TAG_X = b"refs/heads/x", b"refs/tags/x"
CACHED_TAG, CACHED_BRANCH = {MAIN: key(1), TAG_X: key(2)}, {MAIN: key(1), BRANCH_X: key(2)}
NO_X = {MAIN: key(1)}
OF_X = "error refs/heads/x"


def answers(remote: ServerOf, words: str, *pushes: str, first: str = "") -> list[str]:
    """What git is told of these pushes after the list, of `git push o` with these words."""
    lines = "\n".join([f"{first}list for-push", *[f"push {each}" for each in pushes], "", ""])
    here = local_with(main=key(1), topic=key(2))
    said = Conversation(lines, remote, here, parse(["git", "push", "o", *words.split()])).run()
    return said[said.index("") + 1 : -1]


MAIN_TO_TAG, MAIN_TO_BRANCH = "refs/heads/main:refs/tags/x", "refs/heads/main:refs/heads/x"


@pytest.mark.parametrize(
    ("words", "push", "cached", "actual", "answer", "attempts"),
    [
        # What is cached is old: another ref is meant.
        ("main:x", MAIN_TO_TAG, CACHED_TAG, NO_X, ["ok refs/tags/x", "option refname refs/heads/x"], 2),
        # It is old, and the same ref is meant.
        (":x", ":refs/heads/x", CACHED_BRANCH, {**CACHED_BRANCH, BRANCH_X: key(3)}, ["ok refs/heads/x"], 2),
        # It is old, and git would have refused.
        (":x", ":refs/heads/x", CACHED_BRANCH, NO_X, [f"{OF_X} unable to delete 'x': remote ref does not exist"], 1),
        (
            "main~1:x",
            f"{key(1).hex()}:refs/heads/x",
            CACHED_BRANCH,
            NO_X,
            [f"{OF_X} x names no remote ref, and its source is no branch or tag: push to refs/heads/..."],
            1,
        ),
    ],
)
def test_a_short_target_is_decided_by_the_refs_of_the_server(
    words: str,
    push: str,
    cached: Mapping[bytes, bytes],
    actual: Mapping[bytes, bytes],
    answer: list[str],
    attempts: int,
) -> None:
    remote = ServerOf(cached, actual)
    assert answers(remote, words, push) == answer
    assert [request.atomic for request in remote.attempts] == [True] * attempts


def test_refs_that_change_again_are_no_base_for_a_decision() -> None:
    remote = ServerOf(CACHED_TAG, NO_X, CACHED_TAG)
    assert answers(remote, "main:x", MAIN_TO_TAG) == ["ok refs/tags/x"]
    assert len(remote.attempts) == 3
    remote = ServerOf(CACHED_TAG, *[NO_X, CACHED_TAG] * 3)
    why = "other users changed refs of that name during each attempt; try again"
    assert answers(remote, "main:x", MAIN_TO_TAG) == [f"error refs/tags/x {why}"]
    assert len(remote.attempts) == 5


def test_a_refused_ref_stops_the_other_of_an_atomic_push_and_is_not_sent_again() -> None:
    remote = ServerOf(CACHED_BRANCH, CACHED_BRANCH, diverged=TOPIC)
    topic = "refs/heads/topic:refs/heads/topic"
    found = answers(remote, "main:x topic", MAIN_TO_BRANCH, topic, first="option atomic true\n")
    assert found == [f"{OF_X} atomic push failed", "error refs/heads/topic fetch first"]
    assert len(remote.attempts) == 1
    remote = ServerOf(CACHED_BRANCH, CACHED_BRANCH, diverged=BRANCH_X)
    assert answers(remote, "main:x", MAIN_TO_BRANCH) == [f"{OF_X} fetch first"]
    assert len(remote.attempts) == 1


def test_other_outcomes() -> None:
    done = [
        UpdateOutcome(RefUpdate(MAIN, key(1)), Outcome.UNCHANGED, key(1)),
        UpdateOutcome(RefUpdate(TOPIC, key(1)), Outcome.DONE),
        UpdateOutcome(RefUpdate(b"refs/heads/gone", None), Outcome.UNCHANGED),
        UpdateOutcome(RefUpdate(b"refs/heads/deleted", None), Outcome.DONE, key(3)),
    ]
    remote = FakeRemote({}, known=True, answers=done)
    lines = Conversation("push refs/heads/main:refs/heads/x\n\n", remote, local_with(main=key(1))).run()
    assert lines == [
        "error refs/heads/main up to date",
        "ok refs/heads/topic",
        "ok refs/heads/gone",
        "ok refs/heads/deleted",
        "",
    ]


def test_what_is_no_commit_is_not_pushed_to_a_branch_nor_anything_beside_it() -> None:
    here = local_with(main=key(1))
    here.objects[key(4)] = BLOB
    remote = FakeRemote({}, known=True)
    push = f"push {key(4).hex()}:refs/heads/x\npush refs/heads/main:refs/heads/y\n\n"
    _, *lines = Conversation(f"option atomic true\n{push}", remote, here).run()
    assert lines == [f"error refs/heads/x {NOT_A_COMMIT.decode()}", "error refs/heads/y atomic push failed", ""]
    assert remote.pushed == []


FETCH = {"remote.o.fetch": [b"+refs/heads/*:refs/remotes/o/*"]}
NEW = b"refs/heads/new"
V1 = b"refs/tags/v1"
KNOWN = {MAIN: (Tip(key(2)),), TOPIC: (Tip(key(3)),), V1: (Tip(key(4), key(2)),)}


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
            V1,
            [*absent(b"v1", V1), RefUpdate(V1, key(4), Rule.LEASE, expected=key(4), attributes=key(2))],
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
