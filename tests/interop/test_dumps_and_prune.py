"""cli.dump, cli.load, cli.prune: git's history survives a dump and a load; a server is sent a token only where it asks
for one; a secret that a user of git pushed, and removed by force, is in no file and is sent to nobody.

`smartserver fast-import` and `fast-export` of repositories of Mercurial and Breezy: after an import and an export, a
history has the same trees, people and messages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import git_histories
import pytest
from builders import MAIN, History, push
from click.testing import CliRunner
from git_sides import SETTINGS, TIMEOUT, Done, Served, Side, environment, fine
from needs import needs, program
from pack_texts import bytes_in, texts_in

from smartserver.cli.main import group
from smartserver.records.model import Tip
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


SYSTEMS = pytest.mark.parametrize("vcs", ["hg", "bzr"])

HISTORY = r"""
mkdir -p a; git init -q -b master a; cd a
mkdir -p "d/$(printf 'q"\303\251')"; printf '\377\0' >"d/$(printf 'q"\303\251')/x"; echo one >one
git add -A; git commit -q -m 'first'
chmod +x one; ln -s one link; git add -A
GIT_AUTHOR_NAME='Ö B' GIT_AUTHOR_EMAIL=b@example.org GIT_AUTHOR_DATE='1500000000 +0545' git commit -q -m 'by another

with a body'
git tag light
git checkout -q -b topic master~1; echo topic >topic; git add -A
git -c i18n.commitEncoding=latin1 commit -q -m "$(printf 'caf\351')"
git checkout -q -b third master; echo third >third; git add -A; git commit -q -m third
git checkout -q master; git merge -q -m both topic
git rm -q -r d; git mv one two; git commit -q -m 'moved'; git tag -a -m annotated v1
rm two; mkdir two; echo x >two/x; git add -A; git commit -q -m 'a folder in place of a file'
cd ..
"""
"""A script of a history that streams may spell in several ways, without names that one of the systems refuses."""


@pytest.fixture
def side(served: Served, tmp_path: Path) -> Side:
    """A user with a history of git's, and an unused URL."""
    made = Side(tmp_path / "side", served.url(f"other-{tmp_path.name}"), served)
    made.prepare(HISTORY)
    return made


def history(side: Side, repository: str, branch: str, vcs: str = "hg") -> str:
    """Return the history of a branch without ids. A revision of Breezy's has one date."""
    date = "%ad" if vcs == "hg" else "%cd"
    return side.git(repository, "log", "--topo-order", f"--format=%T %an %ae {date} %B", branch, "--")


def back(side: Side, name: str = "back") -> None:
    """Export the repository at the URL, and import it with git."""
    side.prepare(f'smartserver fast-export "$URL" >{name}.stream; git init -q -b master {name}')
    side.prepare(f"git -C {name} fast-import --quiet <{name}.stream")


def refused(done: Done, why: str) -> None:
    assert done.status == 1, done.said
    assert done.err.count("\n") == 1, done.err
    assert why in done.err, done.err


@SYSTEMS
def test_a_history_goes_there_and_comes_back(side: Side, vcs: str) -> None:
    done = fine(
        side.run(f'git -C a fast-export --reencode=no --all | smartserver fast-import --vcs {vcs} "$URL"'),
        rounds={"hg": 3, "bzr": 6}[vcs],
    )
    expected = ["master", "light", "v1"] if vcs == "hg" else ["trunk"]
    assert sorted(done.out.split()) == sorted([*expected, "third", "topic"])
    back(side)
    for branch in ("master", "topic", "third"):
        assert history(side, "back", branch, vcs) == history(side, "a", branch, vcs)
    tags = side.git("a", "log", "--no-walk", "--format=%D %T", "light", "v1^{}").count("tag: ")
    assert side.git("back", "log", "--no-walk", "--format=%D %T", "light", "v1^{}").count("tag: ") == tags == 2
    assert side.git("back", "diff", "--stat", "light", "third~1") == ""


def test_mercurial_has_what_was_imported(side: Side) -> None:
    side.prepare('git -C a fast-export --reencode=no -M -C --all | smartserver fast-import --vcs hg "$URL"')
    side.prepare('hg --config extensions.hpss= clone -q "$URL" h; hg -R h verify -q')
    found = side.run("hg -R h log -r 'bookmark()' -T '{bookmarks} {branch}\\n'; hg -R h tags -q")
    assert sorted(found.out.split("\n")) == sorted(
        ["", "light", "master default", "third default", "tip", "topic default", "v1"]
    )
    assert side.run("hg -R h log -r master~1 -T '{file_copies}' --copies").out == "two (one)"
    assert side.run("hg -R h log -r 'light' -T '{user} {date|rfc3339date} {desc|firstline}'").out == (
        "Ö B <b@example.org> 2017-07-14T08:25:00+05:45 by another"
    )


@SYSTEMS
def test_a_stream_goes_on_from_marks(side: Side, vcs: str) -> None:
    marks = "--import-marks m --export-marks m"
    side.prepare("touch m g")
    export = "git -C a fast-export --reencode=no --import-marks=../g --export-marks=../g"
    side.prepare(f'{export} third -- | smartserver fast-import --vcs {vcs} {marks} "$URL"')
    side.prepare(f'{export} master | smartserver fast-import {marks} --keep kept "$URL"')
    side.prepare("cd a; echo more >more; git add -A; git commit -q -m more; cd ..")
    side.prepare(f'{export} master | smartserver fast-import {marks} --keep kept "$URL"')
    back(side)
    assert history(side, "back", "master", vcs) == history(side, "a", "master", vcs)
    side.prepare(f'smartserver fast-export {marks.replace(" m", " e")} "$URL" >/dev/null || touch e')
    side.prepare('smartserver fast-export --import-marks e --export-marks e "$URL" >whole')
    side.prepare('smartserver fast-export --import-marks e --export-marks e "$URL" >none')
    assert b"\ncommit " not in (side.folder / "none").read_bytes()
    if vcs == "hg":
        assert re.fullmatch(r"(:\d+ [0-9a-f]{40}\n)+", (side.folder / "m").read_text())


def test_what_could_not_be_pushed_is_pushed_by_the_next_run(side: Side) -> None:
    words = 'git -C a fast-export --reencode=no --all | smartserver fast-import --vcs hg --keep kept "$URL"'
    banned = side.run(words, SMARTSERVER_DEBUG="hpss-ban=rpc:Repository.insert_pack")
    assert banned.status == 1
    assert "is banned" in banned.err
    side.prepare(words)
    back(side)
    assert history(side, "back", "master") == history(side, "a", "master")


def test_a_kept_folder_is_ours(side: Side) -> None:
    side.prepare("hg init mine; echo '[hooks]' >mine/.hg/hgrc")
    done = side.run('smartserver fast-import --vcs hg --keep mine "$URL" </dev/null')
    refused(done, "was not created by --keep")


COMMIT = "commit refs/heads/master\nmark :2\ncommitter A <a@example.org> 1700000000 +0000\ndata 1\nm\n"


@pytest.mark.parametrize("name", ["../../../x", "/tmp/x", ".bzr/x", "a/./b"])
def test_a_branch_cannot_lead_out_of_its_repository(side: Side, name: str) -> None:
    (side.folder / "hostile").write_text(COMMIT.replace("heads/master", f"heads/{name}"))
    refused(side.run('smartserver fast-import --vcs bzr "$URL" hostile'), "line 1 of the stream")


@SYSTEMS
def test_files_change_places_as_in_git(side: Side, vcs: str) -> None:
    """Files that a stream moves get the same places as with git's own reader."""
    more = "commit refs/heads/b{0}\nmark :{0}\ncommitter A <a@example.org> 170000000{0} +0000\ndata 1\nm\nfrom :2\n"
    changes = (
        "R a d/y\nR d/x a\n",
        "R a a/z\n",
        "R a c\nR b a\nR c b\n",
        "R d e\n",
        "C d e\nD d/x\n",
        "R a a/z\nR b a/b\nM 644 inline a/z\ndata 1\nz\n",
        "R d/x t\nR t d\n",
        "D a\nM 644 inline a/x\ndata 1\nx\nD d/w/v\nM 644 inline d/w\ndata 1\ny\nR b b/d\n",
    )
    (side.folder / "moves").write_text(
        COMMIT
        + "".join(f"M 644 inline {path}\ndata {len(path)}\n{path}\n" for path in ("a", "b", "d/x", "d/w/v"))
        + "".join(more.format(number) + change for number, change in enumerate(changes, 3))
    )
    side.prepare(f'smartserver fast-import --vcs {vcs} "$URL" moves; git init -q -b master g')
    side.prepare("git -C g fast-import --quiet <moves")
    back(side)
    for number in range(3, 3 + len(changes)):
        assert side.git("back", "ls-tree", "-r", f"b{number}") == side.git("g", "ls-tree", "-r", f"b{number}"), number


def test_what_brz_has_moved_is_exported_as_it_lies(side: Side) -> None:
    side.prepare(
        """
        smartserver setup brz >out; BRZ_EMAIL='Quote "Q" O, Jr. <q@example.org>'; export BRZ_EMAIL
        brz init -q w; cd w; mkdir d f; echo x >d/x; echo p >p; echo q >q; echo y >f/y; brz add -q; brz commit -q -m one
        brz mv -q d e; brz mv -q p t; brz mv -q q p; brz mv -q t q; brz commit -q -m two
        brz mv -q f/y t; brz rm -q f; brz mv -q t f; brz commit -q -m three; brz push -q "$URL"
        """
    )
    back(side)
    assert side.git("back", "ls-tree", "-r", "--name-only", "master~1").split() == ["e/x", "f/y", "p", "q"]
    assert side.git("back", "ls-tree", "-r", "--name-only", "master").split() == ["e/x", "f", "p", "q"]
    assert side.git("back", "show", "master:q") == "p"
    assert side.git("back", "log", "-1", "--format=%cn <%ce>") == 'Quote "Q" O, Jr. <q@example.org>'


def test_what_somebody_else_pushed_meanwhile_is_not_lost(side: Side) -> None:
    """The stream comes after the repository was received, and changed meanwhile."""
    more = COMMIT.replace(":2", ":{0}").replace("data 1\nm", "data 1\n{0}") + "from :2\n"
    for name, stream in (("first", COMMIT), ("theirs", more.format(3)), ("mine", more.format(4))):
        (side.folder / name).write_text(stream)
    side.prepare('smartserver fast-import --vcs hg --export-marks m "$URL" first')
    words = 'smartserver fast-import --import-marks m "$URL"'
    received = "for n in $(seq 900); do hg -R kept/copy log -r 0 -T . >x 2>&1 && break; sleep 0.05; done"
    done = side.run(f"({received}; {words} theirs >out; cat mine) | {words} --keep kept")
    assert done.status == 1, done.said
    assert done.err.count("\n") == 1, done.err
    back(side)
    assert side.git("back", "log", "--format=%s", "master").split() == ["3", "m"]


@pytest.mark.parametrize("vcs", ["git", "hg", "bzr"])
def test_a_branch_is_deleted_only_by_force(side: Side, vcs: str) -> None:
    side.prepare(f'git -C a fast-export --reencode=no --all | smartserver fast-import --vcs {vcs} "$URL"')
    (side.folder / "gone").write_text(f"reset refs/heads/topic\nfrom {'0' * 40}\n\n")
    refused(side.run('smartserver fast-import "$URL" gone'), "refs/heads/topic would be deleted")
    side.prepare('smartserver fast-import --force "$URL" gone')
    back(side)
    assert side.git("back", "for-each-ref", "--format=%(refname)", "refs/heads/topic") == ""


@SYSTEMS
def test_nothing_is_lost_unless_it_is_forced(side: Side, vcs: str) -> None:
    side.prepare(f'git -C a fast-export --reencode=no master | smartserver fast-import --vcs {vcs} "$URL"')
    side.prepare("cd a; git checkout -q --orphan new; git rm -q -r -f .; echo n >n; git add -A; git commit -q -m new")
    side.prepare("git -C a branch -f master new")
    export = "git -C a fast-export --reencode=no master"
    refused(side.run(f'{export} | smartserver fast-import "$URL"'), "--force moves it")
    back(side)
    assert "moved" in side.git("back", "log", "--format=%s", "master")
    side.prepare(f'{export} | smartserver fast-import --force "$URL"')
    back(side, "forced")
    assert side.git("forced", "log", "--format=%s", "master") == "new"


def test_a_damaged_stream_changes_nothing(side: Side) -> None:
    for stream, why in (
        (COMMIT + "M 100644 inline x\ndata 1\nx\nfrobnicate\n", "line 9 of the stream: the command 'frobnicate'"),
        (COMMIT + "M 100644 :9 x\n", "9"),
        (COMMIT + "from :7\n", "no commit :7"),
        ("reset refs/heads/y\nfrom :7\n", "line 2 of the stream: no commit :7"),
        (COMMIT + "R missing b\n", "missing"),
    ):
        (side.folder / "damaged").write_text(stream)
        refused(side.run('smartserver fast-import --vcs hg "$URL" damaged'), why)
    refused(side.run('smartserver fast-export "$URL"'), "no repository at")


def test_what_a_system_has_not_is_counted(side: Side) -> None:
    side.prepare(
        "cd a; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub"
        "; git commit -q -m sub; git notes add -m note"
    )
    done = side.run('git -C a fast-export --reencode=no --all | smartserver fast-import --vcs hg "$URL"')
    assert done.status == 0
    assert "1 submodule left out" in done.err
    assert "1 note left out" in done.err
    back(side)
    assert "sub" not in side.git("back", "ls-tree", "-r", "--name-only", "master").split("\n")


def test_another_systems_repository_is_refused(side: Side) -> None:
    side.prepare('git -C a fast-export --reencode=no --all | smartserver fast-import --vcs hg "$URL"')
    for words, why in (
        ("--vcs git", "is a repository of hg sha1, not of git"),
        ("--vcs bzr", "there is a repository of hg sha1"),
    ):
        refused(side.run(f'smartserver fast-import {words} "$URL" </dev/null'), why)
    refused(side.run('smartserver fast-export "$URL" main'), "which can only be exported whole")
    refused(
        side.run('smartserver fast-import --vcs hg "$SIDE/folder" </dev/null'),
        "a repository of Mercurial or Breezy needs a URL here",
    )


@needs("cvs", "cvs-fast-export")
def test_a_history_of_cvs(side: Side) -> None:
    side.prepare(
        f"""
        CVSROOT=$SIDE/cvsroot; export CVSROOT; PATH=$PATH:{Path(program("cvs")).parent}
        cvs init; mkdir start; cd start; echo one >one; cvs -Q import -m start module vendor begin; cd ..
        cvs -Q checkout module; cd module; sleep 1; echo two >>one; echo new >new; cvs -Q add new
        cvs -Q commit -m second
        cd ..
        find cvsroot/module -name '*,v' | cvs-fast-export >stream
        """
    )
    side.prepare('smartserver fast-import --vcs hg "$URL" stream; hg --config extensions.hpss= clone -q "$URL" h')
    assert side.run("cat h/one h/new").out == "one\ntwo\nnew\n"
    assert side.run("hg -R h log -r master -T '{desc|firstline}'").out == "second"


@needs("svnadmin", "git-svn")
def test_a_history_of_subversion(side: Side) -> None:
    side.prepare(
        f"""
        PATH=$PATH:{Path(program("svnadmin")).parent}
        svnadmin create s; svn -q mkdir -m layout file://$SIDE/s/trunk file://$SIDE/s/branches
        svn -q checkout file://$SIDE/s/trunk w; cd w; mkdir d; echo one >d/one; svn -q add d; svn -q commit -m first
        svn -q update; svn -q mv d e; svn -q commit -m moved; cd ..
        git svn -q clone -s file://$SIDE/s from-svn
        git -C from-svn branch -q -f trunk refs/remotes/origin/trunk
        git -C from-svn fast-export -M trunk | smartserver fast-import --vcs bzr "$URL"
        """
    )
    back(side)
    assert side.git("back", "log", "--format=%s", "trunk").split("\n")[0] == "moved"
    assert side.git("back", "show", "trunk:e/one") == "one"


PROGRAM = "smartserver"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    (made / ".gitconfig").write_text(SETTINGS)
    return made


def attempt(home: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PROGRAM, *words],
        cwd=home,
        env=environment(home),
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )


def run(home: Path, *words: str, stdin: bytes = b"") -> bytes:
    done = attempt(home, *words, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b""), (words, done.stderr)
    return done.stdout


def test_git(home: Path, tmp_path: Path) -> None:
    builder = git_histories.Builder(home / "a.git", environment(home))
    history = git_histories.RandomHistory(builder, 3, 120)
    commits = list(history.commits)
    served = Served(tmp_path, "--anonymous", "write", "--fsck", "off")  # It has all faults that git can have.
    urls = [served.url(name) for name in ("source", "target")]
    parts = ["first", "second"]
    for at, part in zip((60, len(commits)), parts, strict=True):
        for number, commit in enumerate(commits[at - 20 : at]):
            builder.ref(f"refs/heads/{part}{number}", commit)
        builder.ref(f"refs/tags/{part}", builder.tag(commits[at - 1], b"commit", part.encode()))
        builder.ref(f"refs/notes/{part}", builder.tag(builder.blob(part.encode()), b"blob", b"of a blob"))
        builder.git("push", "-q", urls[0], "refs/*:refs/*")
        run(home, "dump", *(() if part == "first" else ("--since", "first")), urls[0], part)
        run(home, "load", *parts[: parts.index(part) + 1], urls[1])
    every = [git_histories.Builder(home / f"{name}.git", environment(home)) for name in ("b", "c")]
    for url, clone in zip(urls, every, strict=True):
        clone.git("fetch", "-q", url, "refs/*:refs/*")
        clone.git("fsck", "--connectivity-only")
        for command in (["for-each-ref"], ["rev-list", "--objects", "--all"]):
            assert clone.git(*command) == builder.git(*command)
    assert served.close() == ""


def test_a_token_is_sent_where_one_is_wanted(home: Path, tmp_path: Path) -> None:
    """A server that anybody may read asks for a token only on a change; `load` sends it at first contact."""
    history = History()
    line = history.line(3)
    push(PackRepository(LocalTransport(home), "source"), history, line, {MAIN: line[-1]})
    content = run(home, "dump", "source")
    rules = tmp_path / "access.toml"
    rules.write_text(
        '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "create"\n[[rules]]\nwho = ["*"]\npath = "**"\nmay = "read"\n'
    )
    made = attempt(home, "token", "create", str(rules), "anna")
    server = Served(tmp_path, "--access", str(rules))
    variable = f"SMARTSERVER_TOKEN=127.0.0.1:{server.proxy.port}={made.stdout.decode().split()[-1]}"
    (home / "x").write_bytes(content)
    for number, file in enumerate(("-", "x")):
        url = server.url(f"project{number}")
        refused = attempt(home, "load", file, url, stdin=content)
        assert b"set SMARTSERVER_TOKEN to " in refused.stderr
        words = ["env", variable, PROGRAM, "load", file, url]
        cache = {"XDG_CACHE_HOME": str(home / f"cache{number}")}
        subprocess.run(words, cwd=home, env={**environment(home), **cache}, input=content, check=True)
        stored = PackRepository(LocalTransport(server.root), f"project{number}")
        assert dict(stored.snapshot().state.refs()) == {MAIN: (Tip(line[-1]),)}
    server.close()


# -- prune

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
