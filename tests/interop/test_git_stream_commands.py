"""`smartserver import`, `fast-export` and `fast-import` make the same objects as git."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Done, Served, Side, fine, server_head

from smartserver.programs import OF_REPOSITORIES

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]


@pytest.fixture
def side(served: Served, tmp_path: Path, request: pytest.FixtureRequest) -> Side:
    """A user without a repository, and an unused URL."""
    return Side(tmp_path / "side", served.url(f"streams-{request.node.name.replace('[', '-').strip(']')}"), served)


def refs_in(side: Side, repository: str) -> dict[str, str]:
    listed = side.git(repository, "for-each-ref", "--format=%(refname) %(objectname)")
    return dict(line.split(" ") for line in listed.splitlines())


def failed(done: Done, why: str) -> None:
    assert done.status == 1, done.said
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    assert why in done.err


# -- import


def test_import(side: Side) -> None:
    side.prepare(
        "mkdir -p d/sub d/.git d/empty; echo one >d/one; echo run >d/sub/run; chmod +x d/sub/run; ln -s one d/link;"
        " echo '*' >d/.gitignore"
    )
    done = fine(side.run('as a smartserver import d "$URL" -m "The first"'), rounds=3)
    assert done.out.endswith(" on refs/heads/main: 4 files, 4 sent (a new repository)\n")
    side.prepare('echo two >d/sub/two; rm d/one; as b git clone -q "$URL" b')
    done = fine(side.run('as a smartserver import d "$URL@main" --author "N. N. <n@example.org>"'))
    assert done.out.endswith(" on refs/heads/main: 4 files, 1 sent\n")
    fine(side.run('as a smartserver import d "$URL"'))
    side.prepare("b git pull -q")
    assert (
        side.git("b", "log", "--format=%an <%ae> %s") == "N. N. <n@example.org> Import d\nA <a@example.org> The first"
    )
    made = side.git("b", "ls-files", "-s").replace("\t", " ").splitlines()
    assert [line.split()[0] + " " + line.split()[3] for line in made] == [
        "100644 .gitignore",
        "120000 link",
        "100755 sub/run",
        "100644 sub/two",
    ]
    assert side.git("b", "fsck", "--strict", "--no-dangling", "--no-progress") == ""


def test_import_beside_another_user(side: Side) -> None:
    """An import without a cache, or with a stale one, requests the newest tree and commits on top of it."""
    side.prepare('mkdir d; echo one >d/one; echo two >d/two; as a smartserver import d "$URL"')
    side.prepare('echo three >d/two; as b smartserver import d "$URL"; echo other >d/other')
    done = fine(side.run('as c smartserver import d "$URL"'), rounds=3)
    assert done.out.endswith(" on refs/heads/main: 3 files, 1 sent\n")
    for user, gone in (("b", "other"), ("a", "one")):  # What b remembers is what the folder has, and not what is there.
        side.prepare(f"rm d/{gone}")
        done = fine(side.run(f'as {user} smartserver import d "$URL"'), rounds=4)
        assert done.out.endswith(" 0 sent\n")
    side.prepare('git clone -q "$URL" r')
    assert side.git("r", "rev-list", "--count", "HEAD") == "5"
    for change in ("true", "echo new >d/two"):
        side.prepare(f'smartserver delete --yes "$URL"; {change}')
        assert "1 sent (a new repository)" in side.run('as a smartserver import d "$URL"').out


def test_import_into_a_folder(side: Side) -> None:
    side.prepare('mkdir d; echo one >d/one; smartserver import d "$SIDE/served"; echo two >d/two')
    done = side.run('smartserver import d "$SIDE/served"; smartserver import d "$SIDE/served"')
    assert done.out.endswith(" on refs/heads/main: 2 files, 1 sent\nnothing new\n")


def test_import_of_what_cannot_be(side: Side) -> None:
    side.prepare("mkdir e")
    failed(side.run('smartserver import e "$URL"'), "e has no files")
    for name in ("a..b", "HEAD", "refs/tags/v1"):
        failed(side.run(f'echo x >e/x; smartserver import e "$URL@{name}"'), "cannot be a branch")
    side.prepare('mkdir d; echo x >d/x; hg init r; hg -R r --config extensions.hpss= init "$URL"')
    failed(side.run('smartserver import d "$URL"'), "a folder can be imported only into a git repository")


# -- streams

ODD = r"""
cd a
git checkout -q --orphan odd; git rm -q -rf .
mkdir d; printf '\377' >"$(printf 'd/q"\n\t')"; echo x >x; chmod +x x; ln -s x l
git add -A; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub
git -c i18n.commitEncoding=latin1 commit -q -m "$(printf 'caf\351')" --date '1500000000 +0545'
git mv x y; git commit -q -m moved
git merge -q --allow-unrelated-histories -m both main; git merge -q -m more topic
git commit -q --allow-empty -m '' --allow-empty-message
git notes add -m note
git tag -d nested >/dev/null
cd ..
"""
"""A script of objects that streams may spell in several ways."""


def test_a_history_comes_back_from_a_stream(ours: Begin) -> None:
    side = ours("history")
    side.prepare(ODD)
    git = "git -C a fast-export --all --reencode=no --signed-tags=warn --use-done-feature"
    done = fine(side.run(f'{git} | smartserver fast-import "$URL"'), rounds=3)
    assert "(a new repository)" in done.out
    assert side.refs == refs_in(side, "a")
    assert len(side.refs) == 7
    side.prepare('git clone -q --mirror "$URL" m')
    assert refs_in(side, "m") == refs_in(side, "a")
    fine(side.run('smartserver fast-export "$URL" >stream'))
    assert b"\nencoding latin1\ndata 5\ncaf\xe9" in (side.folder / "stream").read_bytes()
    fine(side.run('smartserver fast-export --reencode yes "$URL" >utf-8'))
    assert b"\ndata 6\ncaf\xc3\xa9" in (side.folder / "utf-8").read_bytes()
    side.prepare("git init -q --bare n; git -C n fast-import --quiet <stream")
    assert refs_in(side, "n") == refs_in(side, "a")
    assert (side.folder / "stream").read_bytes().endswith(b"\ndone\n")
    side.check_sound()


def test_increments_by_marks(ours: Begin) -> None:
    side = ours("history")
    side.prepare("git -C a tag -d nested >/dev/null")
    export = "git -C a fast-export --all --import-marks-if-exists=../am --export-marks=../am"
    bring = 'as b smartserver fast-import --export-marks bm --keep kept "$URL"'
    fine(side.run(f"{export} | {bring}"), rounds=3)
    side.prepare("a commit five; a git branch new")
    done = fine(side.run(f"{export} >more; wc -l <more; {bring} --import-marks bm more"), rounds=3)
    assert int(done.out.split()[0]) < 40
    assert side.refs == refs_in(side, "a")
    fine(side.run('as b smartserver fast-export --export-marks em --keep kept "$URL" main >s1'))
    side.prepare("a commit six; a git push -q origin main")
    done = fine(
        side.run('as b smartserver fast-export --import-marks em --export-marks em --keep kept "$URL" main >s2')
    )
    assert done.counts.bytes_down < 1500
    side.prepare(
        "git init -q --bare n; git -C n fast-import --quiet --export-marks=m <s1;"
        " git -C n fast-import --quiet --import-marks=m <s2"
    )
    assert refs_in(side, "n") == {"refs/heads/main": side.git("a", "rev-parse", "main")}
    assert len((side.folder / "s2").read_bytes()) < 1000


@pytest.mark.parametrize(
    ("marks", "why"),
    [("absent/marks", "absent: there is no such folder: create it first"), ("/dev/full", "No space left on device")],
)
def test_marks_that_cannot_be_written_prevent_the_push(ours: Begin, marks: str, why: str) -> None:
    side = ours("shared")
    before = side.refs
    (side.folder / "stream").write_text(
        "commit refs/heads/new\nmark :1\ncommitter A <a@b> 1 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"
    )
    failed(side.run(f'smartserver fast-import --export-marks {marks} "$URL" stream'), why)
    assert side.refs == before


def test_no_variable_of_another_repository_is_left(side: Side) -> None:
    listed = side.git(".", "rev-parse", "--local-env-vars").split()
    assert OF_REPOSITORIES.issuperset(listed)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ("blob\ndata 9\nabc", "line 2 of the stream: EOF in data (6 bytes remaining)"),
        ("reset refs/heads/x\nfrom refs/heads/main^0\nreset refs/tags/light\nfrom refs/heads/main^0\n", "light"),
        (
            "commit refs/heads/x\ncommitter A <a@b> 1 +0000\ndata 1\nx\nM 100644 inline ../evil\ndata 1\nx\n",
            "hasDotdot",
        ),
    ],
)
def test_what_is_wrong_changes_nothing(ours: Begin, stream: str, why: str) -> None:
    side = ours("shared")
    before = side.refs
    (side.folder / "stream").write_text(stream)
    (side.folder / "marks").write_text("as it was")
    failed(side.run('as c smartserver fast-import --export-marks marks "$URL" stream'), why)
    assert side.refs == before
    assert (side.folder / "marks").read_text() == "as it was"
    assert not list(side.folder.rglob("evil"))


def test_a_branch_is_moved_by_force(ours: Begin) -> None:
    side = ours("shared")
    (side.folder / "stream").write_text("reset refs/heads/main\nfrom refs/heads/topic^0\n")
    fine(side.run('smartserver fast-import --force "$URL" stream'), rounds=3)
    assert side.refs["refs/heads/main"] == side.refs["refs/heads/topic"]


def test_sha256(side: Side) -> None:
    side.prepare("git init -q --object-format=sha256 a; a commit one; git -C a fast-export --all >stream")
    fine(side.run('smartserver fast-import --vcs git-sha256 "$URL" stream'), rounds=3)
    assert side.refs == refs_in(side, "a")
    assert side.served is not None
    assert server_head(side.served, side.path) == "refs/heads/main"
    side.prepare('smartserver fast-export "$URL" >back; git init -q --bare --object-format=sha256 n')
    side.prepare("git -C n fast-import --quiet <back")
    assert refs_in(side, "n") == refs_in(side, "a")
    done = fine(side.run('mkdir d; echo x >d/x; smartserver import d "$URL"'), rounds=3)
    assert side.refs["refs/heads/main"] == done.out.split()[0]


def test_what_a_stream_cannot_say_is_told(ours: Begin) -> None:
    side = ours("shared")
    done = side.run('smartserver fast-export "$URL" >stream')
    assert done.status == 0
    words = (
        "smartserver: 1 tag of the whole history of something else than a commit, or with a name, header or tagger "
        "that no stream has: "
    )
    assert (
        done.err == words + "the stream cannot hold this, so a repository made from it has other ids for such objects\n"
    )
    failed(
        side.run('smartserver fast-export "$URL" none'),
        "the source has no branch or tag 'none'; it has refs/heads/main",
    )
