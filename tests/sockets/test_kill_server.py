"""The server dies without warning, at random moments of a push and before each step that makes a push durable."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
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
"""The number of concurrent trials: a client that lost its server mostly waits before it retries."""
SEED = 20
SIZE = 200_000
MAIN = "refs/heads/main"


def push(user: User, server: Server, commit: str) -> Done:
    return user.git("push", server.url("p"), f"{commit}:{MAIN}", folder="w")


def check_interrupted(done: Done, *, changed: bool) -> None:
    """Check that the client reports the outcome of its push in one line, and claims nothing false or unknown to it."""
    reason = done.failed("push")
    unknown = "it is unknown whether the change was made: "
    assert reason.startswith(unknown) or not changed, reason
    lost = r"cannot connect to 127\.0\.0\.1:\d+: |127\.0\.0\.1:\d+: |the server closed the connection|Connection reset"
    assert re.match(lost, reason.removeprefix(unknown)), reason


def check_swept(root: Path) -> None:
    """Check that files of dead servers are deleted once they are a day old."""
    for left in (root / "p" / "incoming").iterdir():
        os.utime(left, (0, 0))
    with Server(root):
        wait_until(lambda: is_tidy(root, "p"), "incoming/ is empty")


def test_at_random_moments_of_a_push(tmp_path: Path) -> None:
    """The push is large, and mostly being sent. A small push is mostly syncs; another test kills before each."""
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
