"""plugins.git.push: what is asked of the remote, and what git is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from git_conversation import MAIN, TOPIC, Conversation, FakeRemote, local_with
from git_local import key

from smartserver.client.push import PushRequest
from smartserver.client.updates import Outcome, PushOutcome, RefUpdate, UpdateOutcome
from smartserver.errors import (
    A_GIT_REPOSITORY,
    AccessDenied,
    BranchExists,
    DivergedBranches,
    HeadBranch,
    NoSuchRepository,
    NotDone,
    StaleLease,
)
from smartserver.plugins.git.hint import parse
from smartserver.plugins.git.push import NOT_A_COMMIT, NOT_ATOMIC
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.vcs.base import CannotSend
from smartserver.vcs.git.objects import BLOB, TAG
from smartserver.verbs.rules import Rule
from transports.errors import CodedError


def test_rules() -> None:
    remote = FakeRemote({b"refs/heads/leased": key(8)})
    here = local_with(main=key(1))
    here.tips[b"refs/tags/v1"] = key(4)
    here.objects[key(4)] = TAG
    here.targets[key(4)] = key(1)
    lines = [
        "list for-push",
        f"option cas refs/heads/leased:{key(8).hex()}",
        f'option cas "refs/heads/dr\\303\\274ck\\"t:{"0" * 40}"',
        "push refs/heads/main:refs/heads/a",
        "push +refs/heads/main:refs/heads/b",
        "push refs/tags/v1:refs/tags/v1",
        "push +refs/tags/v1:refs/tags/v2",
        "push refs/heads/main:refs/heads/leased",
        "push +refs/heads/main:refs/heads/leased",
        'push refs/heads/main:refs/heads/dr\u00fcck"t',
        "push :refs/heads/gone",
        "push :refs/heads/leased",
        f"push {key(1).hex()}:refs/heads/id",
    ]
    Conversation("\n".join([*lines, "", ""]), remote, here).run()
    drueckt = 'refs/heads/dr\u00fcck"t'.encode()
    assert remote.pushed == [
        RefUpdate(b"refs/heads/a", key(1), Rule.FF),
        RefUpdate(b"refs/heads/b", key(1), Rule.FORCE),
        RefUpdate(b"refs/tags/v1", key(4), Rule.NEW, attributes=key(1)),
        RefUpdate(b"refs/tags/v2", key(4), Rule.FORCE, attributes=key(1)),
        RefUpdate(b"refs/heads/leased", key(1), Rule.LEASE, expected=key(8)),
        RefUpdate(b"refs/heads/leased", key(1), Rule.FORCE),
        RefUpdate(drueckt, key(1), Rule.LEASE, expected=b""),
        RefUpdate(b"refs/heads/gone", None),
        RefUpdate(b"refs/heads/leased", None, expected=key(8)),
        RefUpdate(b"refs/heads/id", key(1), Rule.FF),
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DivergedBranches(MAIN, key(1)), "non-fast forward"),
        (DivergedBranches(MAIN, key(9)), "fetch first"),
        (DivergedBranches(MAIN, key(4)), "needs force"),
        (BranchExists(MAIN, key(9)), "already exists"),
        (StaleLease(MAIN, key(1), key(2)), "stale info"),
        (
            HeadBranch(MAIN),
            "deletion of the current branch prohibited: first run "
            "`smartserver config hpss://h:1/x head ANOTHER-BRANCH`",
        ),
        (NotDone(), NOT_ATOMIC.decode()),
        (AccessDenied("write", "this is\nread-only"), "not allowed: write: this is read-only"),
        (AccessDenied("write", "\x1b[2Jno \udcff"), "not allowed: write: [2Jno"),
        (
            NoSuchRepository("x", A_GIT_REPOSITORY),
            "no repository at 'x' but a git repository, which is not served: to have it served, run "
            "`git push --mirror hpss://h:1/ANOTHER-PATH` in it",
        ),
    ],
)
def test_refusals_are_said_in_words_git_knows(error: CodedError, words: str) -> None:
    update = RefUpdate(MAIN, key(1))
    remote = FakeRemote({}, known=True, answers=[UpdateOutcome(update, Outcome.REFUSED, error=error)])
    here = local_with(main=key(1))
    here.objects[key(4)] = BLOB
    lines = Conversation("push refs/heads/main:refs/heads/main\n\n", remote, here).run()
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


def test_a_refusal_without_a_reason() -> None:
    remote = FakeRemote({}, known=True, answers=[UpdateOutcome(RefUpdate(MAIN, key(1)), Outcome.REFUSED)])
    lines = Conversation("push refs/heads/main:refs/heads/main\n\n", remote, local_with(main=key(1))).run()
    assert lines == ["error refs/heads/main no reason given", ""]


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


@pytest.mark.parametrize(
    ("line", "commands", "cached", "actual", "answers", "attempts"),
    [
        # What is cached is so.
        ("main:x", "refs/heads/main:refs/tags/x", CACHED_TAG, CACHED_TAG, ["ok refs/tags/x"], 1),
        (":x", ":refs/heads/x", CACHED_BRANCH, CACHED_BRANCH, ["ok refs/heads/x"], 1),
        # It is old: another ref is meant.
        (
            "main:x",
            "refs/heads/main:refs/tags/x",
            CACHED_TAG,
            NO_X,
            ["ok refs/tags/x", "option refname refs/heads/x"],
            2,
        ),
        (":x", ":refs/heads/x", CACHED_BRANCH, CACHED_TAG, ["ok refs/heads/x", "option refname refs/tags/x"], 2),
        # It is old, and the same ref is meant.
        (":x", ":refs/heads/x", CACHED_BRANCH, {**CACHED_BRANCH, BRANCH_X: key(3)}, ["ok refs/heads/x"], 2),
        # It is old, and git would have refused.
        (
            ":x",
            ":refs/heads/x",
            CACHED_BRANCH,
            NO_X,
            ["error refs/heads/x unable to delete 'x': remote ref does not exist"],
            1,
        ),
        (
            "main:x topic",
            "refs/heads/main:refs/heads/x\npush refs/heads/topic:refs/heads/topic",
            CACHED_BRANCH,
            {**CACHED_BRANCH, **CACHED_TAG},
            [
                "error refs/heads/x dst refspec x matches more than one",
                "error refs/heads/topic dst refspec x matches more than one",
            ],
            1,
        ),
        (
            "main~1:x",
            f"{key(1).hex()}:refs/heads/x",
            CACHED_BRANCH,
            NO_X,
            ["error refs/heads/x x names no remote ref, and its source is no branch or tag: push to refs/heads/..."],
            1,
        ),
    ],
)
def test_a_short_target_is_decided_by_the_refs_of_the_server(
    line: str,
    commands: str,
    cached: Mapping[bytes, bytes],
    actual: Mapping[bytes, bytes],
    answers: list[str],
    attempts: int,
) -> None:
    remote = ServerOf(cached, actual)
    hint = parse(["git", "push", "o", *line.split()])
    here = local_with(main=key(1), topic=key(2))
    said = Conversation(f"list for-push\npush {commands}\n\n", remote, here, hint).run()
    assert said[said.index("") + 1 :] == [*answers, ""]
    assert [request.atomic for request in remote.attempts] == [True] * attempts


def test_refs_that_change_again_are_no_base_for_a_decision() -> None:
    hint = parse(["git", "push", "o", "main:x"])
    lines = "list for-push\npush refs/heads/main:refs/tags/x\n\n"
    remote = ServerOf(CACHED_TAG, NO_X, CACHED_TAG)
    assert Conversation(lines, remote, local_with(main=key(1)), hint).run()[-2] == "ok refs/tags/x"
    assert len(remote.attempts) == 3
    remote = ServerOf(CACHED_TAG, *[NO_X, CACHED_TAG] * 3)
    refused = Conversation(lines, remote, local_with(main=key(1)), hint).run()[-2]
    assert refused == "error refs/tags/x other users changed refs of that name during each attempt; try again"
    assert len(remote.attempts) == 5


@pytest.mark.parametrize(("option", "attempts"), [("", 2), ("option atomic true\n", 1)])
def test_a_refused_ref_stops_no_other_because_of_a_short_target(option: str, attempts: int) -> None:
    remote = ServerOf(CACHED_BRANCH, CACHED_BRANCH, diverged=TOPIC)
    hint = parse(["git", "push", "o", "main:x", "topic"])
    lines = f"list for-push\n{option}push refs/heads/main:refs/heads/x\npush refs/heads/topic:refs/heads/topic\n\n"
    said = Conversation(lines, remote, local_with(main=key(1), topic=key(2)), hint).run()
    of_x = "error refs/heads/x atomic push failed" if option else "ok refs/heads/x"
    assert sorted(said[-3:-1]) == sorted([of_x, "error refs/heads/topic fetch first"])
    assert len(remote.attempts) == attempts


def test_a_single_ref_that_is_refused_is_not_sent_again() -> None:
    remote = ServerOf(CACHED_BRANCH, CACHED_BRANCH, diverged=BRANCH_X)
    hint = parse(["git", "push", "o", "main:x"])
    lines = "list for-push\npush refs/heads/main:refs/heads/x\n\n"
    assert Conversation(lines, remote, local_with(main=key(1)), hint).run()[-2] == "error refs/heads/x fetch first"
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


@pytest.mark.parametrize("atomic", [False, True])
def test_what_is_no_commit_is_not_pushed_to_a_branch(atomic: bool) -> None:
    here = local_with(main=key(1))
    here.objects[key(4)] = BLOB
    remote = FakeRemote({}, known=True)
    option = "option atomic true\n" if atomic else ""
    push = f"push {key(4).hex()}:refs/heads/x\npush refs/heads/main:refs/heads/y\npush {key(4).hex()}:refs/tags/z\n\n"
    lines = Conversation(option + push, remote, here).run()[1 if atomic else 0 :]
    assert lines[0] == f"error refs/heads/x {NOT_A_COMMIT.decode()}"
    names = [b"refs/heads/y", b"refs/tags/z"]
    assert [update.ref for update in remote.pushed] == ([] if atomic else names)
    assert lines[1:3] == [
        ("error {} atomic push failed" if atomic else "ok {}").format(name.decode()) for name in names
    ]


def test_what_cannot_be_sent() -> None:
    remote = FakeRemote({}, known=True, answers=cast("CodedError", CannotSend("cannot push: something is missing")))
    with pytest.raises(CannotGoOn, match="cannot push: something is missing"):
        Conversation("push refs/heads/main:refs/heads/x\n\n", remote, local_with(main=key(1))).run()
    with pytest.raises(CannotGoOn, match="refs/heads/none is not an object of this repository"):
        Conversation("push refs/heads/none:refs/heads/x\n\n", remote, local_with(main=key(1))).run()
