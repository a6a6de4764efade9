"""server.deliveries: pushes with a receiver and servers that are killed and started again."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from builders import History
from history_sources import HistorySource
from pushing import connected, push
from serving import PATIENCE, Server

from smartserver.client.medium import ConnectionLost
from transports.errors import CodedError

pytestmark = pytest.mark.sockets

REFS = 4
PUSHES = 400
KILLS = 8

RULES = """
[[rules]]
who = ["anonymous"]
path = "**"
may = "admin"

[[hooks]]
path = "**"
url = "{url}"
time-limit = 1
"""


class Receiver:
    """A receiver of HTTP that can be killed: what it took is kept, whether its answer arrived or not."""

    def __init__(self) -> None:
        self.took: list[dict[str, object]] = []
        self._refuses = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver._refuses:  # It died before it had written anything down.
                    self.close_connection = True
                    return
                receiver.took.append(json.loads(body))
                if receiver._dies():  # It died after that, before it answered.
                    self.close_connection = True
                    return
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._chance = random.Random(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _dies(self) -> bool:
        return self._chance.random() < 0.01

    def away(self, is_away: bool) -> None:
        self._refuses = is_away

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def seen(receiver: Receiver, ref: str) -> list[str]:
    """The tips that a ref had, by what was told, as often as it was."""
    tips = []
    for each in list(receiver.took):
        if "refs" in each:
            tips += each["refs"].get(ref, [])  # type: ignore[attr-defined]
        for change in each.get("changes", ()):  # type: ignore[attr-defined]
            if change["ref"] == ref:
                tips += change["new"]
    return tips


def test_each_change_is_told_in_order(receiver: Receiver, tmp_path: Path) -> None:
    """Each acknowledged change at least once. What is told again begins with the one after the last that was noted."""
    access = tmp_path / "access.toml"
    access.write_text(RULES.format(url=receiver.url))
    root = tmp_path / "root"
    root.mkdir()
    history, chance = History(), random.Random(2)
    lines = [history.line(PUSHES // REFS, name=f"n{number}") for number in range(REFS)]
    order = [number for number in range(REFS) for _ in lines[number]]
    chance.shuffle(order)
    kills = set(chance.sample(range(20, PUSHES - 20), KILLS))
    at = [0] * REFS

    def start() -> Server:
        return Server(root, "--access", str(access), "--workers", "2", anonymous="")

    server = start()
    try:
        remote = connected(server.port)
        opened = remote.__enter__()
        for number, ref in enumerate(order):
            tip, name = lines[ref][at[ref]], b"refs/heads/%d" % ref
            at[ref] += 1
            while True:
                try:
                    push(opened, HistorySource(history), name, tip)
                    break
                except (ConnectionLost, CodedError, OSError):
                    remote.__exit__(None, None, None)
                    remote = connected(server.port)
                    opened = remote.__enter__()
            if number in kills:
                receiver.away(bool(len(kills) % 2))
                server.kill()
                kills.discard(number)
                server = start()
                receiver.away(False)
        remote.__exit__(None, None, None)
        deadline = time.monotonic() + 3 * PATIENCE  # A lease of a server that was killed is waited for.
        names = [f"refs/heads/{ref}" for ref in range(REFS)]
        while any(seen(receiver, name)[-1:] != [line[-1].hex()] for name, line in zip(names, lines, strict=True)):
            assert time.monotonic() < deadline, [len(seen(receiver, name)) for name in names]
            time.sleep(0.1)
    finally:
        server.kill()
    for shown, line in zip(names, lines, strict=True):
        place = {made.hex(): position for position, made in enumerate(line)}
        newest = -1
        for told in seen(receiver, shown):
            assert place[told] <= newest + 1, "one was left out"
            newest = max(newest, place[told])
        assert newest == len(line) - 1
