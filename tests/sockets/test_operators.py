"""What a real server gives its operator: the access log and the metrics of a push, a clone and a refusal of git; and
several processes (cli.workers)."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from agents import children
from processes import is_alive
from prometheus_client.parser import text_string_to_metric_families
from serving import PATIENCE, SMARTSERVER, Server, User, run, wait_until, write_history

pytestmark = pytest.mark.sockets


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "user")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


def use(user: User, server: Server) -> None:
    """Push, clone, and ask for a missing repository."""
    write_history(user, "work", 3, seed="operators", size=1000)
    user.git("push", "-q", server.url("project"), "main", folder="work").worked()
    user.git("clone", "-q", server.url("project"), "copy").worked()
    user.git("clone", "-q", server.url('of "nobody"'), "none").failed("clone")


def test_the_access_log_has_a_line_for_each_request(tmp_path: Path, user: User, root: Path) -> None:
    file = tmp_path / "requests"
    with Server(root, "--access-log", f"json:{file}") as server:
        use(user, server)
        wait_until(lambda: '"no-such-repository"' in file.read_text(), "a line of the refusal")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    pushed = next(each for each in lines if each["path"] == "project" and "written" in each)
    cloned = next(each for each in lines if each["verbs"] == ["Repository.pull"])
    refused = lines[-1]
    assert pushed["verbs"] == ["Repository.create", "Repository.insert_pack", "Branch.set_last_revision"]
    assert pushed["up"] > 3000 > pushed["down"]
    assert pushed["syncs"] > 0
    assert cloned["down"] > 3000 > cloned["up"]
    assert (refused["path"], refused["outcome"]) == ('of "nobody"', "no-such-repository")
    for each in lines:
        assert each["user"] == "anonymous"
        assert re.fullmatch(r"127\.0\.0\.1:\d+", each["from"])
        assert each["ms"] >= each.get("busy_ms", 0)
    assert not [line for line in server.log if "outcome" in line], "they are in one log"


def test_metrics_count_what_was_asked(user: User, root: Path) -> None:
    with Server(root, "--metrics", "127.0.0.1:0") as server:
        use(user, server)
        text = server.page("metrics")[1]
        tuned = run(*SMARTSERVER, "tune", f"{server.pages}/metrics")
        assert (tuned.status, tuned.err) == (0, "")
        assert tuned.out.startswith("headers: 32.0 MB now\n")
        assert "texts: 64.0 MB now\n" in tuned.out
        away = run(*SMARTSERVER, "tune", f"{server.pages}/healthz")
        assert (away.status, away.err.count("\n")) == (1, 1)
    found = {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["smartserver_requests_total", "done", "Repository.insert_pack"] == 1
    assert found["smartserver_requests_total", "done", "Repository.pull"] == 1
    assert found["smartserver_request_seconds_count", "Repository.insert_pack"] == 1
    assert found["smartserver_connections_total",] >= 2
    assert found["smartserver_file_syncs_total",] > 0
    assert found["smartserver_hashed_total",] >= 9  # A commit, a tree and a file, three times.
    assert found["smartserver_received_bytes_total",] > 3000
    assert found["smartserver_sent_bytes_total",] > 3000
    assert "anonymous" not in text
    assert "project" not in text


until = partial(wait_until, what="the workers are so")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--workers", "2") as made:
        yield made


def waits(process: int) -> bool:
    """Tell whether a process waits for connections already."""
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(each).startswith("anon_inode:"):
                return True
    return False


@contextmanager
def stopped(worker: int) -> Iterator[None]:
    """Stop a worker, so that the other one serves."""
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def test_what_one_stores_the_other_knows(server: Server, tmp_path: Path) -> None:
    first, second = children(server.process.pid)
    user = User(tmp_path / "user")
    write_history(user, "a", 3, seed="a", size=100)
    url = server.url("project")
    with stopped(second):
        user.git("push", "-q", url, "main~2:refs/heads/main", folder="a").worked()
    with stopped(first):
        assert user.tip("a", "main~2") in user.git("ls-remote", url).worked().out
        user.git("push", "-q", url, "main", folder="a").worked()
    with stopped(second):
        assert user.tip("a") in user.git("ls-remote", url).worked().out


def test_one_that_is_killed_is_replaced(server: Server) -> None:
    first, second = children(server.process.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(children(server.process.pid)) == 2 and first not in children(server.process.pid))
    assert second in children(server.process.pid)
    assert f"worker {first} ended with signal SIGKILL: another one takes its place" in "".join(server.log)
    with stopped(second):
        assert run(*SMARTSERVER, "list", f"hpss://127.0.0.1:{server.port}/").worked().out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(server: Server, number: signal.Signals) -> None:
    found = children(server.process.pid)
    os.kill(server.process.pid, number)
    assert server.process.wait(PATIENCE) == 0
    assert not any(map(is_alive, found))
    assert not server.log[1:]


def test_none_outlives_the_one_above(server: Server) -> None:
    found = children(server.process.pid)
    server.process.kill()
    until(lambda: not any(map(is_alive, found)))


def test_a_signal_while_they_are_forked_ends_all(tmp_path: Path) -> None:
    with Server(tmp_path, "--workers", "64") as server:
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0


def test_one_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """The server does not retry forever."""
    broken = (
        "import sys; import smartserver.server.threads as threads; from smartserver.cli.main import main; "
        "threads.ThreadExecutor.__init__ = lambda *_: sys.exit(3); main()"
    )
    done = run("-c", broken, "serve", str(tmp_path), "--workers", "3", "--listen", "127.0.0.1:0")
    assert (done.status, done.err) == (3, "")


def test_one_that_cannot_take_the_place_of_another_ends_nothing(tmp_path: Path) -> None:
    """The server starts the next worker."""
    broken = (
        "import os, sys; import smartserver.server.threads as threads; from smartserver.cli.main import main; "
        "begin = threads.ThreadExecutor.__init__; threads.ThreadExecutor.__init__ = "
        f"lambda *each: sys.exit(3) if os.path.exists({str(tmp_path / 'broken')!r}) else begin(*each); main()"
    )
    with Server(tmp_path, "--workers", "2", program=("-c", broken)) as server:
        first, second = children(server.process.pid)
        with stopped(first):
            assert run(*SMARTSERVER, "list", f"hpss://127.0.0.1:{server.port}/").worked().out == ""
        (tmp_path / "broken").touch()
        os.kill(first, signal.SIGKILL)
        until(lambda: "ended with status 3: another one takes its place" in "".join(server.log))
        assert is_alive(second)


def test_a_load_balancer_hears_of_the_end_of_workers(tmp_path: Path) -> None:
    with Server(tmp_path, "--workers", "2", "--metrics", "127.0.0.1:0") as server:
        for each in children(server.process.pid):
            until(partial(waits, each))
        server.process.terminate()
        until(lambda: server.page("readyz")[0] == 503)
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0


def metric(server: Server, name: str) -> float:
    lines = server.page("metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"smartserver_{name}"))


def test_they_share_what_they_have_decoded_and_counted(tmp_path: Path) -> None:
    """Each worker exports the tree. Only the first reads the store's files; a worker that replaces one reads none."""
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--workers", "2", "--metrics", "127.0.0.1:0") as server:
        user = User(tmp_path / "user")
        write_history(user, "a", 20, seed="common", size=2000)
        user.git("push", "-q", server.url("a"), "main", folder="a").worked()
        first, second = children(server.process.pid)
        asked = 0

        def export(stopped: int) -> float:
            """Export through the worker that is not stopped, and return the number of texts found in common memory."""
            nonlocal asked
            asked += 1
            until(partial(waits, first))
            os.kill(stopped, signal.SIGSTOP)
            try:
                done = run(*SMARTSERVER, "export", server.url("a"), str(tmp_path / f"tree{asked}"))
                assert (done.status, done.err) == (0, "")
            finally:
                os.kill(stopped, signal.SIGCONT)
            until(lambda: metric(server, 'requests_total{outcome="done",verb="Repository.read"}') == asked)
            return metric(server, "common_cache_hits_total")

        assert export(second) == 0
        found = export(first)
        assert found > 0
        os.kill(first, signal.SIGKILL)
        until(lambda: len(children(server.process.pid)) == 2 and first not in children(server.process.pid))
        (new,) = set(children(server.process.pid)) - {second}
        until(partial(waits, new))
        assert metric(server, 'requests_total{outcome="done",verb="Repository.read"}') == 2  # One is the dead one's.
        first = new
        assert export(second) > found
