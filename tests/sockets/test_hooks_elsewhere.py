"""server.hooks, server.deliveries, store.prune: for a bucket, and for a store whose logs are in PostgreSQL."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import MAIN, History, check_whole, request_id
from dialogs import PATH, Dialog, Served, message
from history_sources import HistorySource
from pushing import connected, push
from serving import Server
from versitygw import S3

from smartserver.errors import RefusedByHook, error_from_wire
from smartserver.server.deliveries import deliver
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.hooks import Hooks
from smartserver.store.format import IMMUTABLE, PACKS
from smartserver.store.preview_folder import PreviewedStore
from smartserver.store.prune import prune
from smartserver.store.repository import PackRepository
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.rules import Rule
from smartserver.wire.messages import Failure, Reply, RequestFlag, named
from transports.base import Transport
from transports.decorators.cached import CachedTransport, CacheFolder
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

SECRET = b"hunter2, which nobody may know\n" * 99

HOOK = """\
#!/bin/sh
cat > {folder}/asked
{python} -m smartserver.cli.main log -q "$SMARTSERVER_NEW" > {folder}/seen 2>&1
{python} -m smartserver.cli.main ls -R "$SMARTSERVER_NEW" >> {folder}/seen 2>&1
{python} -m smartserver.cli.main cat "$SMARTSERVER_NEW" secret >> {folder}/seen 2>&1 && exit 1
exit 0
"""


class Place:
    """A store, and what the hooks of its server know of it."""

    def __init__(self, open_store: Callable[[], Transport], bucket: PreviewedStore | None) -> None:
        self.open_store, self.bucket = open_store, bucket


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.needs("versitygw")),
                        pytest.param("postgres", marks=pytest.mark.needs("initdb", "postgres"))])  # fmt: skip
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "s3":
        from transports.s3 import S3Transport

        bucket = request.getfixturevalue("s3").bucket()
        store = PreviewedStore(f"s3://{bucket}/some code", str(tmp_path / "copies"), 1)
        copies = CacheFolder(Path(store.copies), 10**9)
        yield Place(lambda: CachedTransport(S3Transport(bucket, "some code"), copies, IMMUTABLE), store)
        return
    from smartserver.store.postgres import Database, create_tables
    from smartserver.store.postgres_log import PostgresLog

    address = request.getfixturevalue("postgres").database()
    with create_tables(address, "one"):
        (tmp_path / "root").mkdir()
    database = Database(address, "one")
    yield Place(lambda: PostgresLog(LocalTransport(tmp_path / "root"), database), None)
    database.close()


def ask(served: Served, tip: bytes) -> Reply | Failure:
    """Push a revision to the main branch, by force."""
    move = (branch_set_last_revision, SetLastRevisionRequest(MAIN, tip, Rule.FORCE))
    asked = message((repository_insert_pack, InsertPackRequest()), move, flags=RequestFlag.BODY, request=request_id())
    return Dialog(served.site).ask(asked, served.history.body([tip]), 1)


def test_a_hook_reads_what_a_push_would_make(place: Place, tmp_path: Path) -> None:
    served = Served(place.open_store())
    history = served.history
    (first,) = history.line(1)
    served.push([first], {MAIN: first})
    wrong = history.commit({**history.files(first), "secret": SECRET}, (first,), "wrong")
    right = history.commit({**history.files(first), "public": b"x\n"}, (first,), "right")
    script = tmp_path / "check"
    script.write_text(HOOK.format(folder=tmp_path, python=sys.executable))
    script.chmod(0o755)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SMARTSERVER_AGENT": "0"}
    served.site.hooks = Hooks(lambda: [Hook(HookText("**", [str(script)]))], variables, bucket=place.bucket)
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


def test_receivers_are_told_by_one_server_at_a_time(place: Place, tmp_path: Path) -> None:
    served = Served(place.open_store())
    line = served.history.line(4)
    served.push(line[:1], {MAIN: line[0]})
    script = tmp_path / "receiver"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/told\n[ -e {tmp_path}/there ]\n")
    script.chmod(0o755)
    hook = Hook(HookText("**", after=[str(script)]))
    other = PackRepository(place.open_store(), PATH)
    (tmp_path / "there").touch()
    assert deliver(served.repository(), hook, {"PATH": os.defpath}, b"one")
    for tip in line[1:]:
        served.push([tip], {MAIN: tip})
    (tmp_path / "there").unlink()
    with pytest.raises(Exception, match="it ended with status 1"):
        deliver(other, hook, {"PATH": os.defpath}, b"another")
    (tmp_path / "there").touch()
    assert deliver(served.repository(), hook, {"PATH": os.defpath}, b"one")
    assert deliver(other, hook, {"PATH": os.defpath}, b"another")
    told = [json.loads(text) for text in (tmp_path / "told").read_text().splitlines()]
    assert [each["repository"] for each in told] == ["whole"] + ["changed"] * 4
    news = [change["new"][0] for each in told[1:] for change in each["changes"]]
    assert news == [line[at].hex() for at in (1, 1, 2, 3)], "the one that failed is told again"
    assert len([name for name in other.folder.list_directory(PACKS) if name.startswith("after-")]) == 1


def test_a_secret_is_pruned(place: Place) -> None:
    served = Served(place.open_store())
    history, repository = served.history, served.repository()
    (first,) = history.line(1)
    wrong = history.commit({**history.files(first), "secret": SECRET}, (first,), "wrong")
    right = history.commit({**history.files(first), "public": b"x\n"}, (first,), "right")
    for tip in (first, wrong, right):
        served.push([tip], {MAIN: tip})
    other = PackRepository(place.open_store(), PATH)
    assert other.snapshot().ordinal(wrong) is not None
    assert prune(repository) == 1
    for each in (repository, other, PackRepository(place.open_store(), PATH)):
        snapshot = check_whole(each, history)
        assert snapshot.ordinal(wrong) is None
        assert snapshot.ordinal(right) is not None
        assert each.verify().problems == ()
    assert prune(other) == 0
    tip = history.commit({**history.files(right), "more": b"y\n"}, (right,), "more")
    served.push([tip], {MAIN: tip})
    assert check_whole(other, history).ordinal(tip) is not None


RULES = """
[[rules]]
who = ["anonymous"]
path = "**"
may = "admin"

[[hooks]]
path = "**"
before = ["{hook}"]
"""


@pytest.mark.needs("versitygw")
def test_a_server_of_a_bucket_says_where_it_is(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.bucket()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "check"
    script.write_text(HOOK.format(folder=tmp_path, python=sys.executable))
    script.chmod(0o755)
    (tmp_path / "access.toml").write_text(RULES.format(hook=script))
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
