"""Four servers on one folder: one is frozen for days in the middle of a change, the clocks of two are a year wrong.

Nothing acknowledged is lost, each answer has what was acknowledged before, and the frozen one's change is made once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import MAIN, History
from pausing import Paused
from pushing import Source, connected, push
from serving import PATIENCE, Server, check_store, server_refs

from smartserver.client.updates import Outcome
from smartserver.store.checkpoint import FEW
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.long]

DAYS = 3 * 24 * 3600.0

BY_ANOTHER_CLOCK = """
import time
real = time.time
time.time = lambda: real() + {seconds}
from smartserver.cli.main import main
main()
"""
YEAR = 365 * 24 * 3600


def age(folder: Path) -> None:
    """Let days pass over every file."""
    for each in folder.rglob("*"):
        then = each.stat().st_mtime - DAYS
        os.utime(each, (then, then))


def tidy(root: Path) -> None:
    PackRepository(LocalTransport(root), "p", clock=lambda: time.time()).tidy()


class Others:
    """The servers that run, each asked in turn, and what they acknowledged."""

    def __init__(self, servers: Sequence[Server], source: Source, tip: bytes) -> None:
        self._turns = itertools.cycle(servers)
        self._source, self._tip = source, tip
        self.acknowledged: set[str] = set()

    def push(self, count: int) -> None:
        """Make refs, each by the next server, which the one after it must then show."""
        for _ in range(count):
            ref = f"refs/heads/{len(self.acknowledged)}"
            with connected(next(self._turns).port) as remote:
                done = push(remote, self._source, ref.encode(), self._tip)
                assert done.outcome is Outcome.DONE
            self.acknowledged.add(ref)
            with connected(next(self._turns).port) as remote:
                remote.pull()
                assert self.acknowledged <= {name.decode() for name in remote.knowledge.refs()}


@pytest.mark.parametrize("cleaned", [True, False], ids=["its place was cleaned", "its place was taken"])
def test_one_is_frozen_for_days(tmp_path: Path, cleaned: bool) -> None:
    history = History()
    first, second = history.line(2)
    source = Source(history)
    clocks = [("-c", BY_ANOTHER_CLOCK.format(seconds=seconds)) for seconds in (0, YEAR, -YEAR)]
    with contextlib.ExitStack() as stack:
        others = Others([stack.enter_context(Server(tmp_path, program=clock)) for clock in clocks], source, first)
        others.push(1)
        threads = stack.enter_context(ThreadPoolExecutor(1))
        frozen = stack.enter_context(contextlib.closing(Paused(tmp_path)))
        frozen.arm(6)  # Its pack is among the others, and its record is about to be published.

        def push_second() -> Outcome:
            with connected(frozen.server.port) as remote:
                return push(remote, source, MAIN, second).outcome

        waiting = threads.submit(push_second)
        assert frozen.paused()[-1].startswith("link p/log/")
        for _ in range(3 if cleaned else 0):
            others.push(FEW)
            age(tmp_path / "p")
            tidy(tmp_path)
        others.push(1)
        log = sorted(int(each.name) for each in (tmp_path / "p" / "log").iterdir())
        assert (log[0] > 20) is cleaned
        frozen.go_on()
        assert waiting.result(PATIENCE) is Outcome.DONE
        others.push(3)
        assert server_refs(tmp_path, "p") == {
            **dict.fromkeys(others.acknowledged, first.hex()),
            MAIN.decode(): second.hex(),
        }
        with connected(frozen.server.port) as remote:
            remote.pull()
            assert others.acknowledged <= {name.decode() for name in remote.knowledge.refs()}
    check_store(tmp_path, "p")
