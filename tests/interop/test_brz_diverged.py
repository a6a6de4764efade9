"""Two branches that went apart, 400 revisions on each side: what `brz pull` and `merge` of the other move over the
link, beside the bytes of exactly the revisions that are missing (`pytest -s` prints them).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest
from breezy.branch import Branch
from breezy.controldir import ControlDir
from brz_histories import ROOT, Node, RandomHistory, Tree, new_repository, quiet
from brz_sides import Users, in_process
from git_sides import Served

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.request import Outgoing
from smartserver.records.model import HERE
from smartserver.verbs.repository_open import OpenRequest, repository_open
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.messages import RequestFlag

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

BASE, SIDE = 150, 400
"""Revisions both have, and that each has alone."""
FILES = 60
MOST = 1.1
"""Bytes that may come, in those that are missing."""
OURS = (b"mine", b"theirs")


class Apart(NamedTuple):
    """The state before each command: user b's branch and the server's have diverged."""

    users: Users
    common: bytes
    missing: int
    """Bytes of the body that holds exactly what b lacks."""


def _grow(history: RandomHistory, name: bytes, tip: bytes | None, tree: Tree, count: int) -> tuple[bytes, Tree]:
    """Add so many revisions, each an edit of a file that the other side leaves alone."""
    chance = random.Random(name)
    for number in range(count):
        file_id = b"%b-%d" % (name, chance.randrange(FILES // 2))
        lines = tree[file_id].content.splitlines(True)
        lines[chance.randrange(len(lines))] = b"changed to %x\n" % chance.getrandbits(40)
        tree = {**tree, file_id: tree[file_id]._replace(content=b"".join(lines))}
        revision = b"joe@example.com-%b-%d-%012x" % (name, len(history.parents), chance.getrandbits(48))
        history.commit(revision, [tip] if tip is not None else [], [], tree)
        tip = revision
        if number % 100 == 99:
            history.repository.commit_write_group()
            history.repository.start_write_group()
    assert tip is not None
    return tip, tree


def _tree() -> Tree:
    tree = {ROOT: Node(b"", "", "directory", b"", False, b"")}
    for name in OURS:
        for number in range(FILES // 2):
            text = b"".join(b"line %d of %b %d\n" % (n, name, number) for n in range(80))
            tree[b"%b-%d" % (name, number)] = Node(ROOT, f"{name.decode()}{number}", "file", text, False, b"")
    return tree


@pytest.fixture(scope="module")
def made(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Apart:
    """User b has branched the base and gone on; so has the server's branch."""
    users = Users(tmp_path_factory.mktemp("diverged") / "users", served, "diverged")
    history = RandomHistory(new_repository(str(users.path("all"))), 1, 0)
    with quiet(), in_process():
        with history.repository.lock_write():
            history.repository.start_write_group()
            common, tree = _grow(history, b"mine", None, _tree(), BASE)
            tips = [_grow(history, name, common, tree, SIDE)[0] for name in OURS]
            history.repository.commit_write_group()
        for name, tip, count in (("base", common, BASE), ("theirs", tips[1], BASE + SIDE)):
            branch = ControlDir.create_branch_convenience(str(users.path(f"all/{name}")), force_new_repo=False)
            branch.set_last_revision_info(count, tip)
    assert users.run("all/base", "push", users.url()).status == 0
    assert users.run("", "branch", users.url(), "b", XDG_CACHE_HOME=str(users.cache("b"))).status == 0
    with quiet(), users.branch("b") as mine:
        mine.fetch(Branch.open(str(users.path("all/base"))), tips[0])
        mine.set_last_revision_info(BASE + SIDE, tips[0])
    assert users.run("b", "update").status == 0
    assert users.run("all/theirs", "push", users.url()).status == 0
    return Apart(users, common, strictly_missing(served, common))


def strictly_missing(served: Served, common: bytes) -> int:
    """The body a server sends to whoever names exactly what is common, and the most recent of it."""
    pull = (repository_pull, PullRequest(haves=[common], refs=[HERE], bulk=True))
    with Client(lambda: TcpMedium(*served.direct)) as client:
        answer = client.request(Outgoing("diverged/trunk", [(repository_open, OpenRequest()), pull], RequestFlag.BELOW))
        size = sum(map(len, answer.body))
    assert answer.results[1].segments == SIDE  # type: ignore[union-attr]
    return size


@pytest.fixture
def apart(made: Apart) -> Callable[[str], Apart]:
    """Copies of it, named; the branch is where the server's still is."""

    def begin(name: str) -> Apart:
        users = made.users
        shutil.copytree(users.path("b"), users.path(name), symlinks=True)
        shutil.copytree(users.cache("b"), users.cache(name))
        return made

    return begin


def check(made: Apart, name: str, words: list[str], status: int, said: str) -> float:
    """One command in one round trip; the bytes that came, in those missing."""
    done = made.users.run(name, *words)
    assert done.status == status, done.said
    assert said in done.said
    assert done.counts.rounds == 2, "one, and one to connect"
    ratio = done.counts.bytes_down / made.missing
    came = done.counts.bytes_down
    print(f"{name}: {came:,} bytes came, {made.missing:,} were missing: {ratio:.3f}; {done.counts.bytes_up:,} went")
    assert ratio <= MOST, done.counts
    return ratio


COMMANDS = {
    "pull": (["pull"], 3, "These branches have diverged."),
    "overwrite": (["pull", "--overwrite"], 0, "Now on revision"),
    "merge": (["merge"], 0, "All changes applied successfully"),
    "missing": (["missing", "--theirs-only", "--line"], 1, "You are missing 400 revisions"),
}


@pytest.mark.parametrize("command", ["pull", "merge", "missing"])
def test_what_is_remembered_tells_what_is_common(apart: Callable[[str], Apart], command: str) -> None:
    check(apart(f"warm-{command}"), f"warm-{command}", *COMMANDS[command])


def test_nothing_is_remembered(apart: Callable[[str], Apart]) -> None:
    made = apart("cold")
    made.users.forget("cold")
    check(made, "cold", *COMMANDS["overwrite"])
