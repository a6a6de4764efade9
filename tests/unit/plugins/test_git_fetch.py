"""plugins.git.fetch: what is pulled, and when."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from builders import KINDS
from git_conversation import MAIN, Conversation, FakeRemote, key, local_with

from smartserver.client.exchange import PullAnswer, ReadAnswer
from smartserver.client.repository import RemoteRepository
from smartserver.errors import LimitExceeded, Unsupported, WrongVcs
from smartserver.plugins.git import fetch
from smartserver.plugins.git.fetch import Fetch
from smartserver.plugins.git.options import Options
from smartserver.plugins.git.terminal import CannotGoOn, Terminal
from smartserver.plugins.git.wants import Wants
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.varint import encode
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.git.selector import MAX_DEPTH, FetchSelector, decode, encode_cut
from smartserver.verbs.repository_pull import PullResult
from smartserver.verbs.repository_read import ReadResult


def test_a_fetch_of_what_did_not_come_pulls_it() -> None:
    remote = FakeRemote({MAIN: key(1)})
    Conversation(f"list\nfetch {key(9).hex()} refs/x\n\n", remote, local_with(main=key(1))).run()
    assert remote.asked[1:] == [([key(1)], (), (key(9),), (), [])]


@pytest.mark.parametrize("option", ["depth 1", "filter blob:none"])
def test_a_part_of_a_repository_of_another_system(option: str) -> None:
    """Its server has no word for the part; the user reads which repository it is."""
    remote = FakeRemote({MAIN: key(1)}, vcs="bzr 2a", pull=Unsupported("reading parts", "whole revisions"))
    with pytest.raises(WrongVcs, match=r"^the repository at 'x' is bzr 2a, not git$"):
        Conversation(f"option {option}\nlist\n", remote, local_with()).run()


def fetch_of(remote: FakeRemote, options: Options | None = None) -> Fetch:
    return Fetch("x", cast("RemoteRepository", remote), Terminal(lambda _line: None), options or Options())


@pytest.fixture
def here(tmp_path: Path) -> Iterator[GitRepository]:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    with GitRepository(tmp_path, {"PATH": os.environ["PATH"]}) as opened:
        yield opened


def test_a_segment_over_the_limit_is_refused_by_what_it_says(here: GitRepository) -> None:
    """Before a byte of it came: what a server of ours takes a client takes."""
    length = MAX_TAKEN + 1

    def body() -> Iterator[bytes]:
        yield encode(length)
        raise AssertionError("it is not read on")

    fetched = fetch_of(FakeRemote({MAIN: key(9)}, pull=PullAnswer(PullResult(1, length), body())))
    fetched.pull(here, Wants(None))
    with pytest.raises(LimitExceeded, match=f"too many bytes of a segment: {length}, at most {MAX_TAKEN} are allowed"):
        fetched.bring(here, {key(9)})


@pytest.mark.parametrize("body", [b"", b"\x05", b"garbage" * 9, b"\xff" * 40])
def test_a_body_that_is_none(body: bytes, here: GitRepository) -> None:
    """Whatever comes, one error says so."""
    pull = PullAnswer(PullResult(1, len(body)), iter([body] if body else []))
    fetched = fetch_of(FakeRemote({MAIN: key(9)}, pull=pull))
    fetched.pull(here, Wants(None))
    with pytest.raises(CannotGoOn):
        fetched.bring(here, {key(9)})


class SelectorRemote(FakeRemote):
    """A remote that keeps the selectors of reads, and answers them with nothing."""

    def read(self, selector: object, *_arguments: object) -> ReadAnswer:  # type: ignore[override]
        assert isinstance(selector, bytes)
        self.asked.append(decode(selector))
        self._learn()
        return ReadAnswer(ReadResult(said=encode_cut([], [])), iter(()), KINDS)


@pytest.fixture
def shallow(tmp_path: Path) -> Iterator[tuple[GitRepository, bytes]]:
    """A shallow repository and its one commit."""

    def git(*words: str) -> str:
        said = subprocess.run(["git", "-C", str(tmp_path), *words], input=b"", capture_output=True, check=True).stdout
        return said.decode().strip()

    git("init", "-q", "--bare")
    who = ("-c", "user.name=a", "-c", "user.email=a")
    tree = git("hash-object", "-t", "tree", "-w", "--stdin")
    first = git(*who, "commit-tree", tree, "-m", "first")
    second = git(*who, "commit-tree", tree, "-p", first, "-m", "second")
    (tmp_path / "objects" / first[:2] / first[2:]).unlink()
    (tmp_path / "shallow").write_text(second + "\n")
    git("update-ref", "refs/heads/main", second)
    with GitRepository(tmp_path, {"PATH": os.environ["PATH"]}) as here:
        yield here, bytes.fromhex(second)


def test_history_is_deepened_once(shallow: tuple[GitRepository, bytes]) -> None:
    """The ids that were not foreseen come with history as the first pull has cut it."""
    here, commit = shallow
    remote = SelectorRemote({MAIN: commit})
    fetched = fetch_of(remote, Options(depth=1, relative=True))
    fetched.pull(here, Wants((MAIN,)))
    fetched.bring(here, {key(9)})
    asked = cast("list[FetchSelector]", remote.asked)
    assert [(each.depth, each.relative, each.shallow) for each in asked] == [(1, True, [commit]), (0, False, [commit])]


def test_more_shallow_commits_than_a_pull_names(
    shallow: tuple[GitRepository, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their parents are not all of refs that are wanted: history below each of them has to come."""
    monkeypatch.setattr(fetch, "MAX_IDS", 0)
    here, commit = shallow
    remote = SelectorRemote({MAIN: commit})
    fetch_of(remote, Options(depth=MAX_DEPTH)).pull(here, Wants((MAIN,)))
    asked = cast("list[FetchSelector]", remote.asked)
    assert [(each.depth, each.shallow) for each in asked] == [(MAX_DEPTH, [commit])]
