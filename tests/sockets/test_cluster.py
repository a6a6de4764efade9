"""`smartserver cluster` and `serve`: real servers of one folder, with logs, rules and tokens in PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from access_rules import ADMIN
from needs import needs
from our_forks import FORKS
from postgres import Postgres
from serving import SMARTSERVER, Server, wait_until

pytestmark = [pytest.mark.sockets, needs("initdb", "postgres")]
PATIENCE = 20


class Cluster:
    """A folder that several servers share."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.folder, self.store = folder, str(folder / "store")
        (folder / "store").mkdir()
        self.address = postgres.database()

    def run(self, *words: str | Path, status: int = 0, **variables: str) -> str:
        """Run a command, and return its output."""
        environment = {**os.environ, "SMARTSERVER_AGENT": "0", "HOME": str(self.folder), **variables}
        ended, out, err = FORKS.run(*SMARTSERVER, *map(str, words), timeout=PATIENCE, environment=environment)
        assert ended == status, err.decode()
        return (out + err).decode()

    def rule(self, who: str) -> Path:
        """Return an access file with a rule for this user."""
        file = self.folder / "access.toml"
        file.write_text(ADMIN.replace("anna", who))
        return file

    @contextmanager
    def server(self, *options: str | Path) -> Iterator[str]:
        """Start a server of the folder, and yield its URL."""
        with Server(self.store, *map(str, options), anonymous="") as server:
            yield server.url("project")


@pytest.fixture
def cluster(tmp_path: Path, postgres: Postgres) -> Cluster:
    return Cluster(tmp_path, postgres)


@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_logs_in_a_database(cluster: Cluster, tmp_path: Path, place: str, request: pytest.FixtureRequest) -> None:
    """A change through one server is seen by the other, and by every command."""
    if place == "bucket":
        cluster.store = f"s3://{request.getfixturevalue('s3').bucket()}/team/code"
    cluster.run("cluster", "init", cluster.store, "--log", cluster.address)
    assert "already" in cluster.run("cluster", "init", cluster.store, "--log", cluster.address, status=1)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("content\n")
    with cluster.server("--anonymous", "write") as one, cluster.server() as other:
        cluster.run("import", tmp_path / "tree", one, "-m", "the first")
        assert cluster.run("cat", f"{other}/file") == "content\n"
    assert "all well" in cluster.run("verify", f"{cluster.store}/project")
    assert "the first" in cluster.run("log", f"{cluster.store}/project")
    assert list(tmp_path.glob("store/project/log/*")) == []
    assert "repositories: 1; 2 records" in cluster.run("cluster", "status", cluster.store)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    wrong = cluster.run("cluster", "init", tmp_path / "other", "--log", cluster.address, status=1)
    assert "file" in wrong


def test_a_server_that_began_before_its_store_had_a_database(cluster: Cluster) -> None:
    """The server would write logs in a place where no other server looks."""
    with Server(cluster.store, "--metrics", "127.0.0.1:0", anonymous="") as server:
        cluster.run("cluster", "init", cluster.store, "--log", cluster.address)
        status, said = server.page("readyz")
    assert (status, "restart the server" in said) == (503, True)


def test_rules_and_tokens_of_all_servers(cluster: Cluster, postgres: Postgres) -> None:
    """A rule and a revoked token soon count on each server; without the database nobody gets access."""
    cluster.run("cluster", "init", cluster.store, "--log", cluster.address)
    cluster.run("cluster", "access", cluster.store, cluster.rule("anna"))
    token = cluster.run("token", "create", cluster.store, "anna").splitlines()[0]
    token_id = cluster.run("token", "list", cluster.store).split()[0]
    cluster.run("token", "create", cluster.store, "ben")
    access = ("--access", cluster.store)
    with cluster.server(*access) as one, cluster.server(*access, "--workers", "2") as other:

        def said(url: str, status: int = 1) -> str:
            host = url.split("/")[2]
            return cluster.run("stats", url, status=status, SMARTSERVER_TOKEN=f"{host}={token}")

        until = partial(wait_until, what="it counts on each server")
        assert "no repository" in said(one)
        assert "no repository" in said(other)
        cluster.run("cluster", "access", cluster.store, cluster.rule("ben"))
        until(lambda: "allow anna nothing" in said(one))
        until(lambda: "allow anna nothing" in said(other))
        cluster.run("cluster", "access", cluster.store, cluster.rule("anna"))
        until(lambda: "no repository" in said(one))
        cluster.run("token", "revoke", cluster.store, token_id)
        until(lambda: "token is unknown" in said(one))
        until(lambda: "token is unknown" in said(other))
        postgres.stop()
        try:
            until(lambda: "the database with the rules of access cannot be reached" in said(one))
        finally:
            postgres.start()
        until(lambda: "token is unknown" in said(one))
