"""cli.prune: a secret that a user of git pushed, and removed by force, is in no file and is sent to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from git_sides import Served, Side
from pack_texts import bytes_in, texts_in

from smartserver.cli.main import group
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

SECRET = "hunter2-which-nobody-may-know"


def smartserver(*words: str) -> str:
    """Return the output of a command that must succeed."""
    done = CliRunner().invoke(group, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_secret_is_pruned(tmp_path: Path) -> None:
    """The clone of its user knows the secret, and goes on."""
    server = Served(tmp_path, "--anonymous", "write")
    url = f"hpss://127.0.0.1:{server.direct[1]}/project"
    side = Side(tmp_path / "users", url, server)
    side.prepare(f'git init -q a; a commit one; a commit {SECRET}; a git push -q "$URL" main')
    wrong = side.git("a", "rev-parse", "main")
    side.prepare(f"a git rm -q {SECRET}; a git commit -q --amend -m two --allow-empty")
    side.prepare('a git push -q --force "$URL" main')
    folder = server.root / "project"
    store = LocalTransport(folder)
    secret = f"{SECRET}\n".encode()

    def given() -> bool:
        """Tell whether the server gives the file by the id of its revision."""
        done = CliRunner().invoke(group, ["cat", f"{url}@{wrong}", SECRET])
        assert (done.exit_code == 0) is (done.stdout_bytes == secret)
        return done.exit_code == 0

    def has() -> bool:
        found = texts_in(store)
        assert b"one\n" in found
        return any(secret in text for text in found) or secret in bytes_in(store)

    assert has()
    assert given()
    listed = smartserver("prune", "--list", str(folder))
    assert wrong in listed
    assert "1 revision that no branch and no tag reaches" in listed
    assert "1 revision removed" in smartserver("prune", "--yes", str(folder))
    assert not given()
    side.prepare('a commit three; a git push -q "$URL" main; as b git clone -q "$URL" b')
    assert side.git("b", "rev-parse", "main") == side.git("a", "rev-parse", "main")
    assert not given()
    assert has(), "the old pack is kept for a day"
    refused = CliRunner().invoke(group, ["prune", "--yes", "--now", str(folder)])
    assert "is open in" in str(refused.exception)
    server.close()
    assert "deleted" in smartserver("prune", "--yes", "--now", str(folder))
    assert not has()
    assert PackRepository(store).verify().problems == ()
