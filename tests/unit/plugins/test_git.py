"""plugins.git: the conversation with git, line by line, with a remote and a repository in memory."""

from __future__ import annotations

import io
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pytest
from git_local import FakeLocal, key

from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import Outcome, Pulled, RefUpdate, RemoteRepository, Updated
from smartserver.errors import (
    AccessDenied,
    BranchExists,
    CorruptFile,
    DivergedBranches,
    HeadBranch,
    MissingRevision,
    NoSuchRepository,
    NotDone,
    StaleLease,
    WrongVcs,
)
from smartserver.plugins.git import CannotGoOn, GitRemote
from smartserver.plugins.git_hint import Hint, parse
from smartserver.plugins.git_words import ADVICE
from smartserver.vcs.base import CannotSend
from smartserver.vcs.git import GitRepository
from smartserver.vcs.git_objects import BLOB, TAG
from smartserver.verbs.repository_pull import PullResult
from smartserver.verbs.rules import Rule
from smartserver.wire.messages import State
from transports.errors import CodedError

MAIN, TOPIC = b"refs/heads/main", b"refs/heads/topic"


class FakeRemote:
    """A remote whose state is learnt when it is asked; pushes are kept and answered as told."""

    def __init__(
        self,
        refs: Mapping[bytes, bytes] | None = None,
        *,
        vcs: str = "git sha1",
        known: bool = False,
        pull: Pulled | CodedError | None = None,
        answers: Sequence[Updated] | CodedError | None = None,
    ) -> None:
        self.knowledge = Knowledge(None, "hpss://h:1/x")
        self.asked: list[object] = []
        self.pushed: list[RefUpdate] = []
        self._refs = refs
        self._vcs = vcs
        self._pull = pull or Pulled(PullResult(), iter(()))
        self._answers = answers
        if known:
            self._learn()

    def _learn(self) -> None:
        if self._refs is None:
            raise NoSuchRepository("x")
        rows: dict[bytes, list[list[object]] | None] = {name: [[tip]] for name, tip in self._refs.items()}
        self.knowledge.learn(State(b"i" * 16, 1, None, rows, vcs=self._vcs, settings={"HEAD": MAIN}))

    def learn_refs(self) -> None:
        self.asked.append("refs")
        self._learn()

    def pull(self, *arguments: object) -> Pulled:
        self.asked.append(arguments)
        self._learn()
        if isinstance(self._pull, CodedError):
            raise self._pull
        return self._pull

    def push(self, updates: Sequence[RefUpdate], source: object, new: object, **flags: bool) -> list[Updated]:
        self.asked.append(flags)
        self.pushed = list(updates)
        if isinstance(self._answers, Exception):
            raise self._answers
        if self._answers is not None:
            return list(self._answers)
        return [Updated(update, Outcome.DONE) for update in updates]


class Conversation:
    """A helper that was told some lines: what it answered, and what it said to the user."""

    def __init__(
        self, lines: str, remote: FakeRemote, local: FakeLocal | None = None, hint: Hint | None = None
    ) -> None:
        self.answers = io.BytesIO()
        self.said: list[str] = []
        self.git = GitRemote(
            "o",
            "x",
            cast("RemoteRepository", remote),
            lambda: cast("GitRepository | None", local),
            hint or Hint(),
            io.BytesIO(lines.encode("utf-8", "surrogateescape")),
            self.answers,
            self.said.append,
        )

    def run(self) -> list[str]:
        self.git.run()
        return self.answers.getvalue().decode("utf-8", "surrogateescape").splitlines()


def local_with(**tips: bytes) -> FakeLocal:
    return FakeLocal({b"refs/heads/" + name.encode(): tip for name, tip in tips.items()})


def test_capabilities() -> None:
    assert Conversation("capabilities\n", FakeRemote()).run() == ["fetch", "push", "option", "object-format", ""]


@pytest.mark.parametrize(
    ("option", "answer", "said"),
    [
        ("progress true", "ok", ""),
        ("verbosity 2", "ok", ""),
        ("dry-run true", "ok", ""),
        ("atomic true", "ok", ""),
        ("followtags true", "ok", ""),
        ("cloning true", "ok", ""),
        ("object-format true", "ok", ""),
        ("force true", "ok", ""),
        ("force-if-includes true", "ok", ""),
        (f"cas refs/heads/x:{'0' * 40}", "ok", ""),
        ("depth 1", "unsupported", "hpss: --depth is not supported: the whole history is fetched"),
        ("depth 0", "unsupported", ""),
        ("deepen-relative true", "unsupported", ""),
        ("deepen-since 2020", "unsupported", "hpss: --shallow-since is not supported: the whole history is fetched"),
        ("deepen-not v1", "unsupported", "hpss: --shallow-exclude is not supported: the whole history is fetched"),
        ("filter blob:none", "unsupported", "hpss: --filter is not supported: all objects are fetched"),
        ("pushcert true", "unsupported", ""),
        ("push-option x", "unsupported", ""),
        ("refetch true", "unsupported", ""),
        ("check-connectivity true", "unsupported", ""),
        ("update-shallow true", "unsupported", ""),
        ("anything", "unsupported", ""),
    ],
)
def test_options(option: str, answer: str, said: str) -> None:
    conversation = Conversation(f"option {option}\n", FakeRemote())
    assert conversation.run() == [answer]
    assert conversation.said == ([said] if said else [])


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("import refs/heads/x\n", "git sent an unknown command: import refs/heads/x"),
        ("push a:b\nfetch c\n\n", "git sent fetch among push commands"),
        ("push a:b\n\n", "push outside a repository"),
        ("list for-push\n", "push outside a repository"),
        (f"fetch {key(1).hex()} refs/heads/x\n\n", "fetch outside a repository"),
    ],
)
def test_what_cannot_be_answered(lines: str, why: str) -> None:
    with pytest.raises(CannotGoOn, match=why):
        Conversation(lines, FakeRemote({})).run()


# -- list


def test_a_list_has_head_first_and_refs_by_name() -> None:
    remote = FakeRemote({TOPIC: key(2), MAIN: key(1)})
    lines = Conversation("list\n", remote).run()
    assert lines == ["@refs/heads/main HEAD", f"{key(1).hex()} refs/heads/main", f"{key(2).hex()} refs/heads/topic", ""]
    assert remote.asked == ["refs"]


def test_a_list_of_an_unborn_head() -> None:
    assert Conversation("list\n", FakeRemote({TOPIC: key(2)})).run() == [f"{key(2).hex()} refs/heads/topic", ""]
    assert Conversation("list\n", FakeRemote({})).run() == [""]


def test_a_list_of_long_ids() -> None:
    remote = FakeRemote({MAIN: key(1, 32)}, vcs="git sha256")
    lines = Conversation("list\n", remote).run()
    assert lines == [":object-format sha256", "@refs/heads/main HEAD", f"{key(1, 32).hex()} refs/heads/main", ""]


@pytest.mark.parametrize("name", [b"refs/heads/x\ny", b"refs/heads/x y", b"", b"refs/heads/\x7f", b"\t"])
def test_names_that_would_be_other_lines_are_left_out(name: bytes) -> None:
    refs = {name: key(2), MAIN: key(1)}
    assert "".join(Conversation("list\n", FakeRemote(refs)).run()).count(key(2).hex()) == 0
    here = local_with(main=key(1))
    assert Conversation("list for-push\n", FakeRemote(refs, known=True), here).run() == ["? refs/heads/main", ""]


def test_a_repository_of_another_system() -> None:
    remote = FakeRemote({}, vcs="hg")
    for lines, here in (
        ("list\n", None),
        ("list\n", local_with()),
        ("push +refs/heads/main:x\n\n", local_with(main=key(1))),
    ):
        with pytest.raises(WrongVcs):
            Conversation(lines, FakeRemote({}, vcs="hg", known=True), here).run()
    assert remote.asked == []


def test_a_list_for_ls_remote_asks_for_refs_only_in_a_repository_too() -> None:
    for line, asked in (("git ls-remote o", "refs"), ("git remote show o", "refs")):
        remote = FakeRemote({MAIN: key(1)})
        Conversation("list\n", remote, local_with(main=key(1)), parse(line.split())).run()
        assert remote.asked == [asked]


def test_a_fetch_pulls_what_it_will_want() -> None:
    remote = FakeRemote({MAIN: key(1)})
    here = local_with(main=key(1))
    Conversation("list\n", remote, here, parse(["git", "fetch", "o", "refs/heads/main"])).run()
    assert remote.asked == [([key(1)], (MAIN,), (), (b"refs/tags/",))]
    assert here.closed


# -- fetch


def test_a_fetch_of_what_is_here_asks_nobody() -> None:
    remote = FakeRemote({MAIN: key(1)})
    lines = Conversation(f"list\nfetch {key(1).hex()} refs/heads/main\n\n", remote, local_with(main=key(1))).run()
    assert lines[-1] == ""
    assert len(remote.asked) == 1


def test_a_fetch_of_what_did_not_come_pulls_it() -> None:
    remote = FakeRemote({MAIN: key(1)})
    Conversation(f"list\nfetch {key(9).hex()} refs/x\n\n", remote, local_with(main=key(1))).run()
    assert remote.asked[1:] == [([key(1)], (), (key(9),), ())]


def test_a_fetch_of_what_the_remote_no_longer_has_forgets_what_was_known() -> None:
    remote = FakeRemote({MAIN: key(9)}, known=True)
    conversation = Conversation(f"fetch {key(9).hex()} refs/heads/main\n\n", remote, local_with(main=key(1)))
    remote._pull = MissingRevision(key(9))
    with pytest.raises(CannotGoOn, match="is forgotten now: try again"):
        conversation.run()
    assert not remote.knowledge.met


@pytest.mark.parametrize("body", [b"", b"\x05", b"garbage" * 9, b"\xff" * 40])
def test_a_body_that_is_none(body: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever comes, one error says so."""
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    with GitRepository(folder, {"PATH": os.environ["PATH"]}) as here:
        remote = FakeRemote({MAIN: key(9)}, pull=Pulled(PullResult(1, len(body)), iter([body] if body else [])))
        conversation = Conversation("", remote)
        conversation.git._opened = here
        conversation.git._commands = io.BytesIO(f"list\nfetch {key(9).hex()} refs/heads/main\n\n".encode())
        with pytest.raises(CannotGoOn):
            conversation.run()


# -- list for-push


def test_a_push_lists_names_without_values_and_asks_nobody() -> None:
    remote = FakeRemote({TOPIC: key(2), MAIN: key(1)}, known=True)
    lines = Conversation("list for-push\n", remote, local_with(main=key(1)), parse(["git", "push", "o"])).run()
    assert lines == ["? refs/heads/main", "? refs/heads/topic", ""]
    assert remote.asked == []


@pytest.mark.parametrize(
    ("line", "lacking"),
    [("git push o :x", ""), ("git push --mirror o", ""), ("git push o", "is_shallow"), ("git push o", "is_partial")],
)
def test_a_push_asks_first_where_it_must(line: str, lacking: str) -> None:
    here = local_with(main=key(1))
    if lacking:
        setattr(here, lacking, True)
    remote = FakeRemote({MAIN: key(1)})
    assert Conversation("list for-push\n", remote, here, parse(line.split())).run() == ["? refs/heads/main", ""]
    assert remote.asked == ["refs"]
    nothing = FakeRemote(None)
    assert Conversation("list for-push\n", nothing, here, parse(line.split())).run() == [""]


def test_a_leased_ref_is_listed_as_expected() -> None:
    remote = FakeRemote({TOPIC: key(2), MAIN: key(1)}, known=True)
    hint = parse(["git", "push", f"--force-with-lease=main:{key(7).hex()}", "o", "main"])
    lines = Conversation("list for-push\n", remote, local_with(main=key(3)), hint).run()
    assert lines == [f"{key(7).hex()} refs/heads/main", "? refs/heads/topic", ""]
    assert remote.asked == []


def test_where_a_lease_would_send_nothing_the_truth_is_listed() -> None:
    remote = FakeRemote({MAIN: key(5)})
    hint = parse(["git", "push", f"--force-with-lease=main:{key(3).hex()}", "o", "main"])
    lines = Conversation("list for-push\n", remote, local_with(main=key(3)), hint).run()
    assert lines == [f"{key(5).hex()} refs/heads/main", ""]
    assert remote.asked == ["refs"]


def test_a_push_from_a_repository_of_long_ids_says_so() -> None:
    here = FakeLocal({MAIN: key(1, 32)}, object_format="sha256")
    lines = Conversation("list for-push\n", FakeRemote({MAIN: key(1)}, known=True), here).run()
    assert lines == [":object-format sha256", "? refs/heads/main", ""]


# -- push


def test_rules() -> None:
    remote = FakeRemote({}, known=True)
    here = local_with(main=key(1))
    here.tips[b"refs/tags/v1"] = key(4)
    here.objects[key(4)] = TAG
    lines = [
        f"option cas refs/heads/leased:{key(8).hex()}",
        f'option cas "refs/heads/dr\\303\\274ck\\"t:{"0" * 40}"',
        "push refs/heads/main:refs/heads/a",
        "push +refs/heads/main:refs/heads/b",
        "push refs/tags/v1:refs/tags/v1",
        "push +refs/tags/v1:refs/tags/v2",
        "push +refs/heads/main:refs/heads/leased",
        'push +refs/heads/main:refs/heads/dr\u00fcck"t',
        "push :refs/heads/gone",
        "push :refs/heads/leased",
        f"push {key(1).hex()}:refs/heads/id",
    ]
    Conversation("\n".join([*lines, "", ""]), remote, here).run()
    drueckt = 'refs/heads/dr\u00fcck"t'.encode()
    assert remote.pushed == [
        RefUpdate(b"refs/heads/a", key(1), Rule.FF),
        RefUpdate(b"refs/heads/b", key(1), Rule.FORCE),
        RefUpdate(b"refs/tags/v1", key(4), Rule.NEW),
        RefUpdate(b"refs/tags/v2", key(4), Rule.FORCE),
        RefUpdate(b"refs/heads/leased", key(1), Rule.LEASE, expected=key(8)),
        RefUpdate(drueckt, key(1), Rule.LEASE, expected=b""),
        RefUpdate(b"refs/heads/gone", None),
        RefUpdate(b"refs/heads/leased", None, expected=key(8)),
        RefUpdate(b"refs/heads/id", key(1), Rule.FF),
    ]


def test_flags() -> None:
    for options, atomic, check_only in (("", False, False), ("option atomic true\noption dry-run true\n", True, True)):
        remote = FakeRemote({}, known=True)
        Conversation(f"{options}push refs/heads/main:x\n\n", remote, local_with(main=key(1))).run()
        assert remote.asked == [{"atomic": atomic, "check_only": check_only}]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DivergedBranches(MAIN, key(1)), "non-fast forward"),
        (DivergedBranches(MAIN, key(9)), "fetch first"),
        (BranchExists(MAIN, key(9)), "already exists"),
        (StaleLease(MAIN, key(1), key(2)), "stale info"),
        (HeadBranch(MAIN), "deletion of the current branch prohibited"),
        (NotDone(), "atomic push failed"),
        (AccessDenied("write", "this is\nread-only"), "write: this is read-only"),
    ],
)
def test_refusals_are_said_in_words_git_knows(error: CodedError, words: str) -> None:
    update = RefUpdate(MAIN, key(1))
    remote = FakeRemote({}, known=True, answers=[Updated(update, Outcome.REFUSED, error=error)])
    lines = Conversation("push refs/heads/main:refs/heads/main\n\n", remote, local_with(main=key(1))).run()
    assert lines == [f"error refs/heads/main {words}", ""]


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
    remote = FakeRemote({}, known=True, answers=[Updated(RefUpdate(ref, key(1), rule), Outcome.DONE, key(7))])
    lines = Conversation("push refs/heads/main:x\n\n", remote, here).run()
    told = [f"ok {ref.decode()}", f"option old-oid {key(7).hex()}", f"option new-oid {key(1).hex()}"]
    assert lines == [*told, *(["option forced-update"] if forced else []), ""]


def test_other_outcomes() -> None:
    done = [
        Updated(RefUpdate(MAIN, key(1)), Outcome.UNCHANGED, key(1)),
        Updated(RefUpdate(TOPIC, key(1)), Outcome.DONE),
        Updated(RefUpdate(b"refs/heads/gone", None), Outcome.UNCHANGED),
        Updated(RefUpdate(b"refs/heads/deleted", None), Outcome.DONE, key(3)),
    ]
    remote = FakeRemote({}, known=True, answers=done)
    lines = Conversation("push refs/heads/main:x\n\n", remote, local_with(main=key(1))).run()
    assert lines == [
        "error refs/heads/main up to date",
        "ok refs/heads/topic",
        "ok refs/heads/gone",
        "ok refs/heads/deleted",
        "",
    ]


def test_a_name_that_is_too_long_is_refused_alone() -> None:
    remote = FakeRemote({}, known=True)
    long = "refs/heads/" + "x" * 1014
    push = f"push refs/heads/main:{long}\npush refs/heads/main:refs/heads/y\n\n"
    lines = Conversation(push, remote, local_with(main=key(1))).run()
    assert lines == [f"error {long} its name has 1025 bytes, expected no more than 1024", "ok refs/heads/y", ""]
    assert [update.ref for update in remote.pushed] == [b"refs/heads/y"]


def test_damage_that_refuses_one_ref_says_who_can_find_more() -> None:
    refused = Updated(RefUpdate(TOPIC, None), Outcome.REFUSED, error=CorruptFile("log/5-1", 0, "the file is missing"))
    remote = FakeRemote({MAIN: key(1), TOPIC: key(1)}, known=True, answers=[refused])
    line, _ = Conversation("push :refs/heads/topic\n\n", remote, local_with(main=key(1))).run()
    damage = "the repository 'x' is damaged: log/5-1 at byte 0: the file is missing"
    assert line == f"error refs/heads/topic {damage} {ADVICE}"


@pytest.mark.parametrize("option", ["depth 1", "filter blob:none"])
def test_what_is_not_supported_is_said_once(option: str) -> None:
    conversation = Conversation(f"option {option}\noption {option}\n", FakeRemote())
    assert conversation.run() == ["unsupported", "unsupported"]
    assert len(conversation.said) == 1


@pytest.mark.parametrize("atomic", [False, True])
def test_what_is_no_commit_is_not_pushed_to_a_branch(atomic: bool) -> None:
    here = local_with(main=key(1))
    here.objects[key(4)] = BLOB
    remote = FakeRemote({}, known=True)
    option = "option atomic true\n" if atomic else ""
    push = f"push {key(4).hex()}:refs/heads/x\npush refs/heads/main:refs/heads/y\npush {key(4).hex()}:refs/tags/z\n\n"
    lines = Conversation(option + push, remote, here).run()[1 if atomic else 0 :]
    assert lines[0] == "error refs/heads/x failed to update ref: a branch must point at a commit"
    names = [b"refs/heads/y", b"refs/tags/z"]
    assert [update.ref for update in remote.pushed] == ([] if atomic else names)
    assert lines[1:3] == [
        ("error {} atomic push failed" if atomic else "ok {}").format(name.decode()) for name in names
    ]


def test_what_cannot_be_sent() -> None:
    remote = FakeRemote({}, known=True, answers=cast("CodedError", CannotSend("cannot push: something is missing")))
    with pytest.raises(CannotGoOn, match="cannot push: something is missing"):
        Conversation("push refs/heads/main:x\n\n", remote, local_with(main=key(1))).run()
    with pytest.raises(CannotGoOn, match="refs/heads/none is not an object of this repository"):
        Conversation("push refs/heads/none:x\n\n", remote, local_with(main=key(1))).run()


def test_a_mirror_tells_of_refs_it_did_not_know() -> None:
    remote = FakeRemote({MAIN: key(1)}, known=True)
    hint = parse(["git", "push", "--mirror", "o"])
    conversation = Conversation(
        "list for-push\npush +refs/heads/main:refs/heads/main\n\n", remote, local_with(main=key(1)), hint
    )
    push = remote.push

    def changed_meanwhile(updates: Sequence[RefUpdate], source: object, new: object, **flags: bool) -> list[Updated]:
        remote._refs = {MAIN: key(1), b"refs/heads/theirs": key(2)}
        remote._learn()
        return push(updates, source, new, **flags)

    remote.push = changed_meanwhile  # type: ignore[method-assign]
    assert conversation.run() == ["? refs/heads/main", "", "ok refs/heads/main", ""]
    assert conversation.said == [
        "hpss: refs/heads/theirs was made meanwhile and is still there: push again to have it removed"
    ]


# -- progress


def ticking(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    times = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: next(times) * step)


def segments(count: int) -> Iterator[bytes]:
    return iter([b"x" * 1000] * count)


def test_progress_is_told_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.3)
    conversation = Conversation("option progress true\n", FakeRemote())
    conversation.run()
    assert list(conversation.git._count("Sending", segments(6), 6)) == [b"x" * 1000] * 6
    assert conversation.said == [
        "Sending:  66% (4/6), 0.00 MB\r",
        "Sending:  83% (5/6), 0.01 MB\r",
        "Sending: 100% (6/6), 0.01 MB\r",
        "Sending: 100% (6/6), 0.01 MB\n",
    ]
    conversation.git.server_progress("checking", 1, 2)
    conversation.git.server_progress("checking", 2, 2)
    conversation.git.server_progress("checking", 2, 0)
    assert conversation.said[4:] == ["remote: checking  50%\r", "remote: checking 100%\n", "remote: checking\n"]


def test_progress_is_told_only_where_git_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 0.3)
    conversation = Conversation("option progress false\n", FakeRemote())
    conversation.run()
    assert len(list(conversation.git._count("Sending", segments(6), 6))) == 6
    conversation.git.server_progress("checking", 1, 2)
    ticking(monkeypatch, 0.01)
    quick = Conversation("option progress true\n", FakeRemote())
    quick.run()
    assert len(list(quick.git._count("Sending", segments(6), 6))) == 6
    assert conversation.said + quick.said == []
