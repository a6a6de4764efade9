"""server.hooks: for a bucket, and for a store whose logs are in PostgreSQL."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from access_rules import ADMIN
from builders import MAIN, History, request_id
from dialogs import Dialog, Served, message
from history_sources import HistorySource
from postgres import Postgres
from pushing import connected, push
from scripts import script
from serving import Server
from versitygw import S3

from smartserver.errors import RefusedByHook, error_from_wire
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hooks import Hooks
from smartserver.store.format import PACKS
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.rules import Rule
from smartserver.wire.messages import Failure, Reply, RequestFlag, named
from transports.base import Transport
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

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
    rules = ADMIN.replace("anna", "anonymous")
    (tmp_path / "access.toml").write_text(f'{rules}[[hooks]]\npath = "**"\nbefore = ["{check}"]\n')
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
