"""store.browse, store.content: a few kilobytes that expand to very much, read from a real server. The read fails with
one line before it takes much memory, and stops with its client. The charged amounts are in the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import MAIN, History, create, push
from dialogs import message
from mercurials import Mercurial
from processes import peak
from serving import SMARTSERVER, Server, run, wait_until
from test_hard_clients import has_line, raw

from smartserver.records.browse import LogSelector, encode_selector
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_read import ReadRequest, repository_read
from smartserver.wire.events import Request
from smartserver.wire.limits import MIB
from smartserver.wire.messages import encode
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

PROGRAM = """
import sys
from smartserver.cli.main import main
from smartserver.server.work import RequestWork
from smartserver.store import allowance
from smartserver.store.transaction import Transaction
allowance.STEPS = %d
refusal, open_body = RequestWork.refusal, Transaction.open_body
def told(work, wrong):
    print("ended by", type(wrong).__name__, file=sys.stderr, flush=True)
    return refusal(work, wrong)
def opened(*arguments):
    print("begun", file=sys.stderr, flush=True)
    return open_body(*arguments)
RequestWork.refusal, Transaction.open_body = told, opened
sys.exit(main())
"""
"""A server that prints when the body of an answer begins, and the error that ended the work of a request."""

LIMIT = "steps of work for one request"

FEW = 20_000


@contextmanager
def serving(root: Path, steps: int = FEW) -> Iterator[Server]:
    with Server(root, program=("-c", PROGRAM % steps)) as server:
        yield server


def nested(root: Path, *, empty: bool) -> None:
    """Push ten objects with ten levels of ten times the same folder."""
    history = History()
    commit = history.nested(10, 10, empty=empty)
    push(PackRepository(LocalTransport(root), "p"), history, [commit], {MAIN: commit})


def question(selector: bytes) -> Request:
    return Request(1, encode(message((repository_read, ReadRequest(selector)), path="p", request=os.urandom(16))))


@pytest.mark.parametrize("words", [("log", "-v"), ("ls", "-R")])
def test_folders_in_folders_of_git(tmp_path: Path, words: tuple[str, ...]) -> None:
    nested(tmp_path, empty=False)
    with serving(tmp_path) as server:
        before = peak(server.process.pid)
        done = run(*SMARTSERVER, *words, server.url("p"))
        assert (done.status, LIMIT in done.err, done.err.count("\n")) == (1, True, 1), done.err
        assert peak(server.process.pid) - before < 64 * MIB


def test_work_ends_with_its_client(tmp_path: Path) -> None:
    """Folders without a file give nothing to send; without a limit, the walk through them takes years."""
    nested(tmp_path, empty=True)
    with serving(tmp_path, 1 << 60) as server:
        with raw(server.port) as (connection, client):
            connection.sendall(client.send(question(encode_selector(LogSelector(changes=True)))))
            wait_until(lambda: has_line(server, "begun"), "it is at work")
        wait_until(lambda: has_line(server, "ended by Cancelled"), "the work has ended")


def test_what_a_verification_looks_through_is_charged(tmp_path: Path) -> None:
    history, repository = History(), PackRepository(LocalTransport(tmp_path), "p")

    def first(transaction: Transaction) -> None:
        create(transaction)
        for number in range(FEW + 1000):
            transaction.set_map("notes", "opaque", b"%d" % number, b"n")

    push(repository, history, history.line(1), first=first)
    with serving(tmp_path) as server:
        done = run(*SMARTSERVER, "verify", server.url("p"))
        assert (done.status, LIMIT in done.err) == (1, True), done.err


@pytest.mark.interop
def test_folders_in_folders_of_mercurial(tmp_path: Path) -> None:
    """A manifest names files alone: each of these files lies in 400 folders."""
    hg = Mercurial(tmp_path)
    names = [f"{number:03d}/" + "d/" * 400 + "f" for number in range(100)]
    patch = "".join(
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,1 @@\n+x\n"
        for name in names
    )
    (tmp_path / "patch").write_text(patch)
    hg("init", "a")
    hg("import", "-q", "--bypass", "-m", "m", str(tmp_path / "patch"), where=tmp_path / "a")
    (tmp_path / "root").mkdir()
    with serving(tmp_path / "root") as server:
        hg("push", "-q", server.url("p"), where=tmp_path / "a")
        done = run(*SMARTSERVER, "ls", "-R", server.url("p"))
        assert (done.status, LIMIT in done.err, done.err.count("\n")) == (1, True, 1), done.err
        assert run(*SMARTSERVER, "log", "-v", server.url("p")).worked().out.count("/f\n") == 100
