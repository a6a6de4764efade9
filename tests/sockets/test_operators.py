"""The access log and the metrics that a real server gives its operator: a push, a clone and a refusal of git."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import SMARTSERVER, Server, User, run, wait_until, write_history

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
