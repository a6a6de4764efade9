"""server.hooks, server.deliveries: hooks of a bucket and of a store whose logs are in PostgreSQL; a receiver of pushes
and servers that are killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from access_rules import ADMIN
from builders import MAIN, History, request_id
from dialogs import Dialog, Served, message
from history_sources import HistorySource
from postgres import Postgres
from pushing import connected, push
from scripts import script
from serving import PATIENCE, Server
from versitygw import S3

from smartserver.client.medium import ConnectionLost
from smartserver.errors import RefusedByHook, error_from_wire
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hooks import Hooks
from smartserver.store.format import PACKS
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.rules import Rule
from smartserver.wire.messages import Failure, Reply, RequestFlag, named
from transports.base import Transport
from transports.errors import CodedError
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

RULES = ADMIN.replace("anna", "anonymous")

SECRET = b"hunter2, which nobody may know\n" * 99

HOOK = """\
cat > {folder}/asked
{python} -m smartserver.cli.main log -q "$SMARTSERVER_NEW" > {folder}/seen 2>&1
{python} -m smartserver.cli.main ls -R "$SMARTSERVER_NEW" >> {folder}/seen 2>&1
{python} -m smartserver.cli.main cat "$SMARTSERVER_NEW" secret >> {folder}/seen 2>&1 && exit 1
exit 0
"""


@pytest.fixture
def store(postgres: Postgres, tmp_path: Path) -> Iterator[Transport]:
    """A folder whose logs are in a database."""
    from smartserver.store.postgres import Database, create_tables
    from smartserver.store.postgres_log import PostgresLog

    address = postgres.database()
    with create_tables(address, "one"):
        (tmp_path / "root").mkdir()
    with closing(Database(address, "one")) as database:
        yield PostgresLog(LocalTransport(tmp_path / "root"), database)


def ask(served: Served, tip: bytes) -> Reply | Failure:
    """Push a revision to the main branch, by force."""
    move = (branch_set_last_revision, SetLastRevisionRequest(MAIN, tip, Rule.FORCE))
    asked = message((repository_insert_pack, InsertPackRequest()), move, flags=RequestFlag.BODY, request=request_id())
    return Dialog(served.site).ask(asked, served.history.body([tip]), 1)


@pytest.mark.needs("initdb", "postgres")
def test_a_hook_reads_what_a_push_would_make(store: Transport, tmp_path: Path) -> None:
    served = Served(store)
    history = served.history
    (first,) = history.line(1)
    served.push([first], {MAIN: first})
    wrong = history.commit({**history.files(first), "secret": SECRET}, (first,), "wrong")
    right = history.commit({**history.files(first), "public": b"x\n"}, (first,), "right")
    check = script(tmp_path / "check", HOOK.format(folder=tmp_path, python=sys.executable))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SMARTSERVER_AGENT": "0"}
    served.site.hooks = Hooks(lambda: [Hook(HookText("**", [check]))], variables)
    before = served.repository().folder.list_directory(PACKS)
    answer = ask(served, wrong)
    assert isinstance(answer, Failure)
    assert isinstance(error_from_wire(answer.fault.code, named(answer.fault)), RefusedByHook)
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith(f"{wrong.hex()}")
    assert first.hex() in seen
    assert seen.endswith(SECRET.decode())
    assert served.repository().folder.list_directory(PACKS) == before
    assert isinstance(ask(served, right), Reply)
    assert json.loads((tmp_path / "asked").read_text())["changes"][0]["new"] == [right.hex()]
    assert "public\n" in (tmp_path / "seen").read_text()
    assert served.refs() == {MAIN: right}


@pytest.mark.needs("versitygw")
def test_a_server_of_a_bucket_says_where_it_is(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.bucket()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    check = script(tmp_path / "check", HOOK.format(folder=tmp_path, python=sys.executable))
    (tmp_path / "access.toml").write_text(f'{RULES}[[hooks]]\npath = "**"\nbefore = ["{check}"]\n')
    history = History()
    (first,) = history.line(1)
    wrong = history.commit({**history.files(first), "secret": SECRET}, (first,), "wrong")
    options = ("--access", str(tmp_path / "access.toml"), "--cache-dir", str(tmp_path / "copies"))
    server = Server(f"s3://{bucket}/code", *options, anonymous="")
    try:
        with connected(server.port) as remote:
            push(remote, HistorySource(history), MAIN, first)
            with pytest.raises(RefusedByHook):
                push(remote, HistorySource(history), MAIN, wrong)
    finally:
        server.kill()
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith(wrong.hex())
    assert seen.endswith(SECRET.decode())


REFS = 4
PUSHES = 400
KILLS = 8


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = True
        if self.server.is_away:  # It died before it had written anything down.
            return
        self.server.took.append(json.loads(body))
        if self.server.chance.random() >= 0.01:  # Else it died after that, before it answered.
            self.send_response(204)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Receiver(ThreadingHTTPServer):
    """A receiver of HTTP that can be killed: what it took is kept, whether its answer arrived or not."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.took: list[dict[str, object]] = []
        self.is_away = False
        self.chance = random.Random(1)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


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
    url = f"http://127.0.0.1:{receiver.server_port}/"
    access.write_text(f'{RULES}[[hooks]]\npath = "**"\nurl = "{url}"\ntime-limit = 1\n')
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
        for number, ref in enumerate(order):
            tip, name = lines[ref][at[ref]], b"refs/heads/%d" % ref
            at[ref] += 1
            while True:
                with contextlib.suppress(ConnectionLost, CodedError, OSError), connected(server.port) as remote:
                    push(remote, HistorySource(history), name, tip)
                    break
            if number in kills:
                receiver.is_away = bool(len(kills) % 2)
                server.kill()
                kills.discard(number)
                server = start()
                receiver.is_away = False
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
