"""cli.prune: a secret that a user of each tool pushed, and removed by force, is in no file and is sent to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from git_sides import Done, Served
from hg_sides import HgSide
from pack_texts import bytes_in, texts_in
from test_each_way import Brz, Git

from smartserver.cli.main import group
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

SECRET = "hunter2-which-nobody-may-know"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "server").mkdir()
    made = Served(tmp_path / "server", "--anonymous", "write")
    yield made
    if made.process.poll() is None:
        made.close()


def smartserver(*words: str) -> str:
    """Return the output of a command that must succeed."""
    done = CliRunner().invoke(group, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


Pushed = tuple[str, Callable[[], None]]
"""The id of the revision with the secret, and a function in which its user, whose clone knows it, pushes and clones."""


def worked(done: Done) -> None:
    assert done.status == 0, done.said


def git(folder: Path, server: Served, url: str) -> Pushed:
    side = Git(folder, url, server)
    side.begin()
    side.commit("a", "one")
    side.commit("a", SECRET)
    assert side.run("push", "a").status == 0
    wrong = side.has("a").split()[0]
    side._side.prepare(f"a git rm -q {SECRET}; a git commit -q --amend -m two --allow-empty")
    done = side._side.run('a git push -q --force "$URL" main')
    assert done.status == 0, done.said

    def again() -> None:
        side.commit("a", "three")
        worked(side.run("push", "a"))
        worked(side.run("clone", "b"))
        assert side.has("b") == side.has("a")

    return wrong, again


def hg(folder: Path, server: Served, url: str) -> Pushed:
    """Mercurial has no push by force: an obsolescence marker removes the changeset."""
    side = HgSide(folder, url, server)
    side.prepare(
        'printf "[experimental]\\nevolution=all\\n" >> .hgrc; hg init "$URL"; smartserver config "$URL" publishing no'
        ' >/dev/null; smartserver config "$URL" evolution yes >/dev/null; hg init a; a commit one; '
        f'a commit {SECRET}; a hg push -q "$URL"'
    )
    wrong = side.run("a hg log -r . -T '{node}'").out
    done = side.run(
        f'a hg rm {SECRET}; echo x > a/two; a hg add -q two; a hg commit -q --amend -m two; a hg push -q "$URL"'
    )
    assert done.status == 0, done.said

    def again() -> None:
        side.prepare("a commit three")
        worked(side.run('a hg push -q "$URL"'))
        worked(side.run('as b hg clone -q "$URL" b'))
        assert side.has()["b"] == side.has()["a"]

    return wrong, again


def brz(folder: Path, server: Served, url: str) -> Pushed:
    side = Brz(folder, url, server)
    side.begin()
    side.commit("a", "one")
    side.commit("a", SECRET)
    done = side.run("push", "a")
    assert done.status == 0, done.said
    wrong = side._users.tip("a")[1].decode()
    side._users.run("a", "uncommit", "--force")
    (folder / "a" / SECRET).unlink()
    side._users.run("a", "rm", SECRET)
    side.commit("a", "two")
    done = side._users.run("a", "push", "-q", "--overwrite", f"{url}/trunk")
    assert done.status == 0, done.said

    def again() -> None:
        side.commit("a", "three")
        worked(side.run("push", "a"))
        worked(side.run("clone", "b"))
        assert side.has("b") == side.has("a")

    return wrong, again


@pytest.mark.parametrize("tool", [git, hg, brz])
def test_a_secret_is_pruned(tool: object, server: Served, tmp_path: Path) -> None:
    url = f"hpss://127.0.0.1:{server.direct[1]}/project"
    wrong, again = tool(tmp_path / "users", server, url)  # type: ignore[operator]
    place = f"{url}/trunk" if tool is brz else url
    folder = server.root / place.removeprefix(url.removesuffix("project"))
    store = LocalTransport(folder)
    secret = f"{SECRET}\n".encode()

    def given() -> bool:
        """Tell whether the server gives the file by the id of its revision."""
        done = CliRunner().invoke(group, ["cat", f"{place}@{wrong}", SECRET])
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
    again()
    assert not given()
    assert has(), "the old pack is kept for a day"
    refused = CliRunner().invoke(group, ["prune", "--yes", "--now", str(folder)])
    assert "is open in" in str(refused.exception)
    server.close()
    assert "deleted" in smartserver("prune", "--yes", "--now", str(folder))
    assert not has()
    assert PackRepository(store).verify().problems == ()
