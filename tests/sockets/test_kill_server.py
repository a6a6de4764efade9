"""The server dies without warning, at random moments of a push and before each thing that makes one durable."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
from pausing import Paused
from serving import (
    SMARTSERVER,
    Done,
    Server,
    User,
    check_store,
    finish,
    is_tidy,
    lanes,
    run,
    server_refs,
    shares,
    wait_until,
    write_history,
)

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

KILLS = 10
LANES = 6
"""Trials at once: a client that lost its server mostly waits to try again."""
SEED = 20
SIZE = 200_000
MAIN = "refs/heads/main"


def push(user: User, server: Server, commit: str) -> Done:
    return user.git("push", server.url("p"), f"{commit}:{MAIN}", folder="w")


def check_interrupted(done: Done, *, changed: bool) -> None:
    """The client says in one line what became of its push; it claims neither what is not so nor what it cannot know."""
    reason = done.failed("push")
    unknown = "it is unknown whether the change was made: "
    assert reason.startswith(unknown) or not changed, reason
    lost = r"cannot connect to 127\.0\.0\.1:\d+: |127\.0\.0\.1:\d+: |the server closed the connection|Connection reset"
    assert re.match(lost, reason.removeprefix(unknown)), reason


def check_swept(root: Path) -> None:
    """What dead servers left goes once it is a day old."""
    for left in (root / "p" / "incoming").iterdir():
        os.utime(left, (0, 0))
    with Server(root):
        wait_until(lambda: is_tidy(root, "p"), "incoming/ is empty")


def test_at_random_moments_of_a_push(tmp_path: Path) -> None:
    """Of a large one, which is mostly on its way; a small one is mostly syncs, before each of which it dies below."""
    user = User(tmp_path / "template")
    commits = write_history(user, "w", KILLS // LANES + 1, seed="kills", size=SIZE, files=5)

    def lane(number: int) -> list[str]:
        chance = random.Random(f"{SEED}/{number}")
        root = tmp_path / f"root{number}"
        root.mkdir()
        shutil.copytree(user.home, tmp_path / f"user{number}")
        mine = User(tmp_path / f"user{number}")
        server = Server(root)
        start = time.monotonic()
        mine.git("push", server.url("measured"), f"{commits[0]}:{MAIN}", folder="w").worked()
        whole = time.monotonic() - start
        told: list[str] = []
        before = ""
        rounds = shares(range(KILLS), LANES)[number]
        for turn, commit in zip(rounds, commits, strict=False):
            moment = chance.uniform(0.3 * whole, 1.2 * whole)
            told.append(f"seed {SEED}/{number}, kill {turn} after {moment:.3f} s of {whole:.3f}")
            try:
                process = mine.start("push", server.url("p"), f"{commit}:{MAIN}", folder="w", forks=True)
                time.sleep(moment)
                server.kill()
                done = finish(process)
                server = Server(root)
                now = server_refs(root, "p").get(MAIN, "")
                assert now in (before, commit)
                if done.status:
                    check_interrupted(done, changed=now == commit)
                else:
                    assert now == commit, "acknowledged and lost"
                check_store(root, "p")
                push(mine, server, commit).worked()
                assert server_refs(root, "p") == {MAIN: commit}
                before = commit
            except BaseException as wrong:
                wrong.add_note("\n".join(told))
                server.kill()
                raise
        with server:
            verdict, *more = run(*SMARTSERVER, "verify", str(root / "p")).worked().out.splitlines()
            assert verdict.endswith(": all well")
            # A push that was killed between its pack and its record: not acknowledged, and nobody can know that.
            assert all("smartserver recover" in each for each in more)
            mine.git("clone", "-q", "--bare", server.url("p"), "back").worked()
        assert mine.tip("back") == before
        check_swept(root)
        return told

    assert sum(map(len, lanes(LANES, lane))) == KILLS


def plain(calls: list[str]) -> list[str]:
    """Calls without what is random in them."""
    return [re.sub(r"[0-9a-f]{8,}(-[0-9a-f]+)?", "X", call) for call in calls]


@pytest.mark.parametrize("creating", [True, False], ids=["first push", "later push"])
def test_before_each_sync_and_rename(tmp_path: Path, creating: bool) -> None:
    """Twenty places and more, and in each the state is known: new from the record on."""
    user = User(tmp_path / "template")
    old, new = write_history(user, "w", 2, seed="pauses", size=3_000, files=3)
    template = tmp_path / "root"
    template.mkdir()
    if not creating:
        with Server(template) as server:
            push(user, server, old).worked()
    before = {} if creating else {MAIN: old}

    def copy(name: str) -> tuple[Path, User]:
        root = tmp_path / f"root {name}"
        shutil.copytree(template, root)
        shutil.copytree(user.home, tmp_path / f"user {name}")
        return root, User(tmp_path / f"user {name}")

    root, mine = copy("0")
    paused = Paused(root)
    wait_until(lambda: is_tidy(root, "p"), "the start is over")
    paused.arm(0)
    push(mine, paused.server, new).worked()
    calls = plain(paused.passed())
    paused.close()
    for expected in ("sync p/incoming/X.pack", "rename p/packs/X.pack", "sync p/packs/", "sync p/incoming/X.record"):
        assert expected in calls, calls
    published = len(calls) - calls[::-1].index("link p/log/X")
    assert calls[published] == "sync p/log/"

    def kill_before(number: int) -> None:
        root, mine = copy(str(number))
        paused = Paused(root)
        wait_until(lambda: is_tidy(root, "p"), "the start is over")
        try:
            paused.arm(number)
            process = mine.start("push", paused.server.url("p"), f"{new}:{MAIN}", folder="w", forks=True)
            assert plain(paused.paused()) == calls[:number]
        finally:
            paused.close()
        done = finish(process)
        with Server(root) as server:
            changed = number > published
            assert server_refs(root, "p") == ({MAIN: new} if changed else before)
            check_interrupted(done, changed=changed)
            check_store(root, "p")
            push(mine, server, new).worked()
            assert server_refs(root, "p") == {MAIN: new}
            check_store(root, "p")

    def lane(number: int) -> None:
        for point in shares(range(1, len(calls) + 1), LANES)[number]:
            try:
                kill_before(point)
            except BaseException as wrong:
                wrong.add_note(f"killed before call {point} of {calls}")
                raise

    lanes(LANES, lane)
