"""plugins.git.push: what is asked of the remote, and what git is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from git_conversation import MAIN, TOPIC, Conversation, FakeRemote, key, local_with

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
from smartserver.plugins.git.push import NOT_A_COMMIT
from smartserver.vcs.git.objects import BLOB, TAG
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
