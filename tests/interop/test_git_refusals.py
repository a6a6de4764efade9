"""An impossible command prints one line that names the object, exits with a status other than 0, changes nothing. For a
damaged repository the line has the file, the position, and the person to ask.

Repositories that lack something: shallow, partial and collected ones never offer what they cannot complete, never
send what they lack, and the server never stores a commit with other parents than it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browse_sides import files_in
from git_sides import Done, Served, Side, check_rounds, fine

from smartserver.client.places import ADVICE
from smartserver.store.trailer import MAGIC

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]


def only_line(done: Done) -> str:
    """Return the only line of the helper; git may add that a push failed."""
    assert done.status not in (0, None), done.said
    lines = [line for line in done.err.splitlines() if not line.startswith(("error: failed to push", "Cloning into"))]
    assert len(lines) == 1, done.err
    return lines[0]


# -- repositories


@pytest.mark.parametrize("command", ["fetch", "clone"])
def test_a_repository_that_is_not_there(ours: Begin, command: str) -> None:
    side = ours("history")
    path = side.path
    result = side.run('as c git clone "$URL" c' if command == "clone" else "a git fetch origin main")
    assert only_line(result) == f"fatal: hpss: there is no repository at '{path}'"
    check_rounds(result.counts, 2)
    assert not (side.folder / "c").exists()


# -- permissions


def test_a_read_only_server(ours: Begin, served: Served, tmp_path: Path) -> None:
    server = Served(tmp_path, root=served.root)
    side = ours("shared")
    path = side.path
    side.prepare("a git remote add reading $READING; a commit four", READING=server.url(path))
    before = files_in(server.root / path)
    said = "this server is read-only for anonymous users (start it with `--anonymous write`)"
    assert side.run("a git fetch reading").status == 0
    for command in ("main", "--force main~1:refs/heads/topic", ":topic", "--dry-run main", "--atomic main topic"):
        result = side.run(f"a git push reading {command}")
        assert result.status != 0
        assert said in result.err, result.err
        assert "Traceback" not in result.err
        assert len([line for line in result.err.splitlines() if said in line]) == 1
    side.prepare("forget a")
    new = only_line(side.run("a git push $NEW main", NEW=server.url(path + "-new")))
    assert said in new
    assert files_in(server.root / path) == before
    assert not (server.root / (path + "-new")).exists()
    assert server.close() == ""


# -- damage


@pytest.fixture(scope="module")
def damaged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own, because the common one must log nothing."""
    server = Served(tmp_path_factory.mktemp("damaged"), "--anonymous", "write")
    yield server
    assert "Traceback" not in server.close()


@pytest.fixture
def side(damaged_server: Served, tmp_path: Path) -> Side:
    """User a has pushed a history; user c has cloned nothing yet."""
    path = f"d-{tmp_path.name}"
    side = Side(tmp_path / "side", damaged_server.url(path), damaged_server)
    side.prepare('git init -q a; a git remote add origin "$URL"; a commit one; a commit two; a git push -q origin main')
    return side


def repository(side: Side) -> Path:
    assert side.served is not None
    return side.served.root / side.path


def test_damage_the_server_meets_is_named(side: Side) -> None:
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    side.prepare("a commit three; forget a")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    result = side.run("a git push origin main:new")
    line = only_line(result)
    assert line.startswith(f"fatal: hpss: the repository '{place.name}' is damaged: {file.relative_to(place)} at byte ")
    assert line.endswith(ADVICE)
    assert str(place.parent) not in result.said


def test_damage_only_the_client_meets_is_named(side: Side) -> None:
    """The server decodes no record that it passes on."""
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    content = bytearray(file.read_bytes())
    content[content.rindex(MAGIC) - 80] ^= 0x10  # Behind the pack lies its trailer.
    file.write_bytes(content)
    result = side.run('as c git clone "$URL" c')
    assert result.status == 128, result.said
    line = only_line(result)
    assert f"'{place.name}'" in line
    assert line.endswith(ADVICE)
    assert not (side.folder / "c").exists()


SHALLOW = """
git init -q --bare local; git -C local config uploadpack.allowFilter true
a git push -q ../local main topic --tags
git clone -q --depth 1 "file://$SIDE/local" c
c git remote set-url origin "$URL"
"""
PARTIAL = "printf changed >a/one; a git commit -q -a -m changed\n" + SHALLOW.replace("--depth 1", "--filter=blob:none")
"""The content of the last commit was fetched to be checked out, that of those before it was not."""

UNPACK = "b sh -c 'mv .git/objects/pack/*.pack p; git unpack-objects -q <p; rm p .git/objects/pack/*'"
"""Make the objects of a clone loose."""


def check_clone(side: Side, *expected: str) -> None:
    """A new clone is whole and has these commits' subjects on main, newest first."""
    side.prepare('as d git clone -q "$URL" d')
    assert side.git("d", "fsck", "--strict", "--no-dangling") == ""
    assert side.git("d", "log", "--format=%s").split() == list(expected)


# -- shallow


def test_a_shallow_repository_cannot_make_a_repository(ours: Begin) -> None:
    side = ours("history")
    side.prepare(SHALLOW)
    for command in ("c git push origin main", "c commit new; c git push origin main"):
        result = side.run(command)
        assert result.status != 0
        (line,) = [each for each in result.err.splitlines() if "the remote lacks history that is cut off here" in each]
        assert (side.folder / "c" / ".git" / "shallow").read_text().strip() in line
        assert "(run `git fetch --unshallow` from where it was cloned)" in result.err
    assert side.refs == {}


def test_a_shallow_repository_is_refused_where_the_server_lacks_its_past(ours: Begin) -> None:
    side = ours("shared")
    side.prepare("a commit four; git init -q --bare local; a git push -q ../local main")
    side.prepare('git clone -q --depth 1 "file://$SIDE/local" c; c git remote set-url origin "$URL"; c commit five')
    before = side.refs
    result = side.run("c git push origin main")
    assert result.status != 0
    assert "cannot push from a shallow repository" in result.err
    assert side.refs == before


def test_history_that_the_server_lacks_stays_cut(ours: Begin) -> None:
    side = ours("shared")
    side.prepare("a commit four; a commit five; git init -q --bare local; a git push -q ../local main")
    side.prepare('git clone -q --depth 1 "file://$SIDE/local" c; c git remote set-url origin "$URL"')
    done = side.prepare("c git fetch --unshallow origin main")
    check_rounds(done.counts, 3)
    assert (side.folder / "c" / ".git" / "shallow").read_text().strip() == side.git("a", "rev-parse", "main")
    assert side.git("c", "log", "--format=%s", "FETCH_HEAD").split() == ["three", "two", "one"]
    assert side.git("c", "fsck", "--strict", "--no-dangling") == ""


# -- partial


def test_a_partial_clone_cannot_push_what_it_did_not_fetch(ours: Begin) -> None:
    side = ours("history")
    side.prepare(PARTIAL)
    result = side.run("c git push origin main")
    assert result.status != 0
    line = result.err.splitlines()[0]
    assert line.startswith("fatal: hpss: cannot push: ")
    assert line.endswith("(a partial clone cannot push what it did not fetch)")
    assert side.refs == {}


def test_a_partial_clone_pushes_a_change_of_a_file_it_did_not_fetch(ours: Begin) -> None:
    side = ours("shared")
    side.prepare(PARTIAL.replace("clone -q", "clone -q --no-checkout") + "a git push -q origin main")
    side.prepare(
        "c git read-tree HEAD; c git update-index --cacheinfo 100644,$(echo new | c git hash-object -w --stdin),one;"
        " c git update-ref HEAD $(c git commit-tree -p HEAD -m new $(c git write-tree --missing-ok))"
    )
    side.prepare("c git push origin main")
    check_clone(side, "new", "changed", "three", "two", "one")


# -- collected


def test_grafts_and_replacements_change_nothing_that_is_sent(ours: Begin) -> None:
    side = ours("history")
    side.prepare(
        "a git replace $(a git rev-parse main~1) $(a git rev-parse topic);"
        " mkdir -p a/.git/info; a git rev-parse main >a/.git/info/grafts"
    )
    assert side.git("a", "log", "--format=%s", "main").split() == ["three"]
    side.prepare("a git push -q origin main 2>/dev/null")
    check_clone(side, "three", "two", "one")


@pytest.mark.parametrize("limit", [100, 1])
def test_a_refetch_brings_everything_again(ours: Begin, limit: int) -> None:
    """A pull with haves would not bring the lost objects: their commit is here."""
    side = ours("shared")
    side.prepare(f"{UNPACK}; b git config fetch.unpackLimit {limit}")
    for name in ("HEAD~1:one", "HEAD~1^{tree}"):
        key = side.git("b", "rev-parse", name)
        (side.folder / "b" / ".git" / "objects" / key[:2] / key[2:]).unlink()
    fine(side.run("b git fetch"))
    assert side.run("b git fsck --connectivity-only").status != 0
    done = fine(side.run("b git fetch --refetch"))
    assert done.said == ""
    assert side.git("b", "fsck", "--strict", "--no-dangling") == ""
