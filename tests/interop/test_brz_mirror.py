"""plugins.breezy.mirror, plugins.breezy.hpss_mirrors: a command keeps the history that it received, and the next one
gets only new revisions. Whatever happens to the mirror, the output is right."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from brz_sides import SHIM, Begin, Users
from git_sides import Done

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 400_000
"""A size of content that no client would send twice."""

LITTLE = 3000
"""The most bytes by which a command learns that there is nothing new."""

WORDS = ("grep", "-r", "1..", "t")
"""A command that reads the trees of all revisions."""

LIGHT = "empty/light"
"""A lightweight checkout outside of every repository, in which commands run."""


def with_much(users: Users) -> None:
    """Commit much content, push it, and make a checkout that no command has used yet."""
    users.commit("a", "large", random.Random(1).randbytes(LARGE))
    assert users.run("a", "push").status == 0
    users.path("empty").mkdir()
    assert users.run("empty", "checkout", "--lightweight", "-r", "1", users.url(), "light").status == 0
    users.forget("empty")


@pytest.fixture
def users(changed: Begin) -> Users:
    return changed(with_much)


def read(users: Users, trips: int = 1, *words: str, branch: str = "trunk", **variables: str) -> Done:
    """Run a command in `trips` round trips at most, and check that its output equals that for user a's branch."""
    words = words or WORDS
    asked = [word.replace("URL", users.url(branch)) for word in words]
    done = users.run(LIGHT, *asked, "-Dhpss", **variables)
    closing = re.findall(r"HPSS calls: (\d+) \((\d+) vfs\)", done.err)
    assert len(closing) == 1, done.said
    assert int(closing[0][0]) <= trips, done.said
    assert closing[0][1] == "0"
    assert done.counts.rounds <= trips + 1, (done.counts, done.said)
    local = users.run("a", *[word.replace("URL", str(users.path("a"))) for word in words])
    assert done.status == local.status, done.said
    ordered = sorted if words[0] == "grep" else list  # It shows a tree's files in the order a repository has them.
    assert ordered(done.out.splitlines()) == ordered(local.out.splitlines()), done.said
    return done


def said(done: Done) -> list[str]:
    """Return the lines of standard error without Breezy's closing line."""
    return [line for line in done.err.splitlines() if not line.startswith("HPSS calls")]


def little(done: Done) -> Done:
    """Check that a command received only the answer that there is nothing new."""
    assert done.counts.bytes_down < LITTLE, done.counts
    assert done.counts.bytes_up < LITTLE, done.counts
    assert said(done) == []
    return done


def folder(users: Users) -> Path:
    """Return the folder of the mirrors."""
    return users.cache("empty") / "smartserver" / "mirrors"


def kept(users: Users) -> list[Path]:
    """Return the existing mirrors."""
    found = folder(users).iterdir() if folder(users).is_dir() else ()
    return [path for path in found if path.is_dir()]


def files(users: Users, part: str) -> list[Path]:
    """Return files of the only mirror."""
    (path,) = kept(users)
    return sorted(each for each in (path / ".bzr" / "repository").glob(part) if each.is_file())


# -- what it costs


def test_the_second_use_costs_what_is_new(users: Users) -> None:
    first = read(users)
    assert first.counts.bytes_down > LARGE
    assert said(first) == []
    for words in (
        WORDS,
        ("log", "-v", "URL/one"),
        ("log", "-n0", "URL"),
        ("annotate", "URL/two"),
        ("tags", "-d", "URL"),
    ):
        little(read(users, 1, *words))
    little(read(users, 1, "cat-revision", "-r", "2"))
    users.commit("a", "more")
    assert users.run("a", "push").status == 0
    assert read(users).counts.bytes_down < LITTLE
    little(read(users))
    (path,) = kept(users)
    assert path.stat().st_mode & 0o077 == 0 or folder(users).stat().st_mode & 0o077 == 0


def test_branches_of_one_repository_share_it(users: Users) -> None:
    read(users)
    assert users.run("a", "push", users.url("side")).status == 0
    # The tip is one of those kept.
    little(read(users, 1, "log", "-v", "URL/one", branch="side"))
    assert len(kept(users)) == 1


# -- what is shown


def test_what_the_branch_does_not_reach_is_not_shown(users: Users) -> None:
    read(users)
    gone = users.tip("a")[1].decode()
    assert users.run("a", "uncommit", "--force", "-q").status == 0
    assert users.run("a", "push", "--overwrite", "-q", "-r", "2").status == 0
    assert users.run("a", "pull", "-q", "--overwrite", users.url()).status == 0
    little(read(users))
    little(read(users, 1, "log", "-v", "URL/one"))
    done = users.run(LIGHT, "grep", "-r", f"revid:{gone}", "t")
    assert done.status in (3, 4), done.said  # What grep says of it is a traceback, of any branch.
    assert done.out == ""
    assert gone in done.err
    # Who asks the repository itself for it is told what that has, as of any branch.
    assert gone in users.run(LIGHT, "cat-revision", gone).out


def test_who_may_not_read_any_more_is_shown_nothing(users: Users, tmp_path: Path) -> None:
    read(users)
    (users.served.root / users.place).rename(users.served.root / f"{users.place}-away")
    done = users.run(LIGHT, *WORDS)
    assert (done.status, done.out) == (3, ""), done.said
    assert "Not a branch" in done.err


def test_a_repository_made_anew(users: Users) -> None:
    """The new repository has the same revisions, or others."""
    read(users)
    shutil.rmtree(users.served.root / users.place)
    assert users.run("a", "push", "--overwrite", users.url("")).status == 0
    assert users.run("a", "push", "--overwrite", users.url()).status == 0
    assert said(read(users, 2)) == []
    little(read(users))
    assert len(kept(users)) == 1
    shutil.rmtree(users.served.root / users.place)
    users.make("c")
    users.commit("c", "two")
    shutil.rmtree(users.path("a"))
    users.path("c").rename(users.path("a"))
    assert users.run("a", "push", users.url("")).status == 0
    assert users.run("a", "push", users.url()).status == 0
    for _ in range(2):
        read(users, 2)  # What the tree rests on is asked for by its id, and is nowhere.


# -- what becomes of it


@pytest.mark.parametrize(("part", "damaged"), [("pack-names", b"garbage"), ("packs/*", b""), ("indices/*.rix", None)])
def test_it_is_damaged(users: Users, part: str, damaged: bytes | None) -> None:
    read(users)
    for file in files(users, part):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
    done = read(users, 2)
    assert len([line for line in said(done) if "damaged" in line]) == len(said(done)) <= 1, done.said
    little(read(users))


def test_one_byte_is_another(users: Users) -> None:
    """The command's output is right, or it reports the damage, and the next command is right."""
    read(users)
    for at in random.Random(3).sample(range(LARGE), 2):
        (pack,) = files(users, "packs/*")
        content = bytearray(pack.read_bytes())
        content[at % len(content)] ^= 0x55
        pack.chmod(0o600)
        pack.write_bytes(content)
        done = users.run(LIGHT, *WORDS)
        if done.status != 0:
            assert "brz: ERROR: the local mirror of URL was damaged (" in done.err
            assert "and was removed: run the command again" in done.err
            assert kept(users) == []
        shutil.rmtree(folder(users))
        read(users)


def test_a_mistake_of_the_program_is_no_damage(users: Users, breaks: str) -> None:
    read(users)
    done = broken(users, breaks, "mistaken")
    assert done.status == 4
    assert "TypeError: unsupported operand" in done.err
    assert "damaged" not in done.err
    little(read(users))  # What is kept stays.


BREAKS = """
import os, signal
from smartserver.plugins.breezy import mirror, spool

WHEN = os.environ["WHEN"]

def killed(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def full(received, repository):
    if repository._transport.base.startswith("file"):
        raise OSError(28, "No space left on device")
    insert(received, repository)

insert = spool.Spool.insert_into
if WHEN == "full":
    spool.Spool.insert_into = full
elif WHEN == "mistaken":
    mirror.OLDER = None
elif WHEN == "uploading":
    from breezy.bzr import pack_repo
    pack_repo.NewPack.finish = killed
"""


LOSES = """
import os, shutil
from smartserver.plugins.breezy import mirror, remote

WHEN = os.environ["WHEN"]
change = remote.Remote._change

def changed(self, *arguments):
    folder = self.history.mirror()._folder
    shutil.rmtree(folder.path)
    if WHEN == "replaced":
        mirror.Mirror(self.url, folder).open()
    return change(self, *arguments)

remote.Remote._change = changed
"""


@pytest.mark.parametrize(
    ("when", "why"),
    [("removed", "damaged (format is not a file) and was removed"), ("replaced", "nothing was changed")],
)
def test_a_mirror_that_another_process_removes_before_a_commit_is_sent(users: Users, when: str, why: str) -> None:
    """The error says what to do, the changes are still in the tree, and the second commit works."""
    plugin = users.folder / "loses.py"
    plugin.write_text(LOSES)
    assert users.run(LIGHT, "update").status == 0
    (users.path(LIGHT) / "one").write_text("mine\n")
    tip = users.served_tip()
    done = users.run(LIGHT, "commit", "-m", "mine", plugin=f"hpss@{SHIM}:loses@{plugin}", WHEN=when)
    (line,) = [line for line in done.err.splitlines() if "ERROR" in line]
    assert (done.status, why in line, "run the command again" in line) == (3, True, True), done.said
    assert users.served_tip() == tip
    assert users.run(LIGHT, "status", "--short").out == " M  one\n"
    assert "Committed revision 5." in users.run(LIGHT, "commit", "-m", "mine").err
    assert users.run(LIGHT, "status", "--short").out == ""


@pytest.fixture
def breaks(users: Users) -> str:
    """Return plugins of brz: ours, and one that breaks off when told to."""
    path = users.folder / "breaks.py"
    path.write_text(BREAKS)
    return f"hpss@{SHIM}:breaks@{path}"


def broken(users: Users, breaks: str, when: str) -> Done:
    return users.run(LIGHT, *WORDS, plugin=breaks, WHEN=when)


def test_a_process_that_is_killed(users: Users, breaks: str) -> None:
    assert broken(users, breaks, "uploading").status == -9
    assert said(read(users)) == []
    little(read(users))
    users.commit("a", "more")
    assert users.run("a", "push").status == 0
    assert broken(users, breaks, "uploading").status == -9
    assert files(users, "upload/*")
    assert said(read(users)) == []
    little(read(users))
    assert files(users, "upload/*") == []


def test_a_full_disk(users: Users, breaks: str) -> None:
    for _ in range(2):
        done = broken(users, breaks, "full")
        assert done.status == 0
        assert re.fullmatch(r"hpss: the history of \S+ is held in memory, not kept: .*No space.*\n", done.err)
        assert done.counts.rounds <= 2
    assert not any(files(users, "packs/*"))
    assert said(read(users)) == []
    little(read(users))


def _bound(path: Path) -> None:
    """Deny all changes in and below a folder, except to root."""
    for each in [path, *path.rglob("*")]:
        each.chmod(each.stat().st_mode & 0o555)


def _unbind(path: Path) -> None:
    path.chmod(0o755)
    for each in path.rglob("*"):
        each.chmod(each.stat().st_mode | 0o700)


NOT_AS_ROOT = """
import ctypes, os

if os.geteuid() == 0:
    CAP_DAC_OVERRIDE = 1
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    for each in range(3):
        sets[each] &= ~(1 << CAP_DAC_OVERRIDE)
    assert libc.capset(header, sets) == 0
"""
"""Statements after which a process of root's is bound by file modes, as the owner is."""


def test_it_cannot_be_written_to(users: Users) -> None:
    """The output is right, with at most one line more; `brz check` finds nothing wrong."""
    read(users)
    users.commit("a", "more")
    assert users.run("a", "push").status == 0
    top = folder(users).parent
    _bound(top)
    users.first = NOT_AS_ROOT
    try:
        for words in (WORDS, ("log", "-v", "URL/more"), WORDS):
            done = read(users, 2, *words)
            assert len(said(done)) <= 1, done.said
        for other_words in (["pull", "-d", str(users.path("b"))], ["log", users.url()], ["hpss-mirrors"]):
            other = users.fine("empty", *other_words)
            assert not other.err.startswith(("Traceback", "brz: ERROR")), other.said
        assert users.tip("b") == users.tip("a")
        assert users.run("b", "check").status == 0
    finally:
        users.first = ""
        _unbind(top)
    read(users)
    little(read(users))


def test_two_at_once(users: Users) -> None:
    for _ in range(2):
        both = [users.start(LIGHT, *WORDS) for _ in range(3)]
        outs = [each.communicate(timeout=120) for each in both]
        assert [each.returncode for each in both] == [0, 0, 0], outs
        assert len({out for out, _ in outs}) == 1
        assert {err for _, err in outs} == {b""}
        users.commit("a", "more")
        assert users.run("a", "push").status == 0
    read(users)
    little(read(users))


# -- what the user says


def test_its_size_is_the_users(users: Users) -> None:
    config = users.folder / ".home" / ".config" / "breezy" / "breezy.conf"
    assert users.run("empty", "config", "--scope=breezy", "hpss.mirror_size=200K").status == 0, config
    users.forget("empty")
    done = read(users)
    assert len(said(done)) == 1
    assert "the mirror of URL would exceed hpss.mirror_size: it is deleted when" in done.err
    assert kept(users) == []
    assert users.run("empty", "config", "--scope=breezy", "hpss.mirror_size=1M").status == 0
    assert said(read(users)) == []
    assert len(kept(users)) == 1
    assert users.run("empty", "config", "--scope=breezy", "hpss.mirror_size=0").status == 0
    assert read(users).counts.bytes_down > LARGE
    assert "At most 0.0 MB" in users.run("empty", "hpss-mirrors").out


def test_they_are_shown_and_removed(users: Users) -> None:
    assert users.run("empty", "hpss-mirrors").out.startswith("At most 1000.0 MB of one repository, 4000.0 MB in all")
    read(users)
    (size,) = re.findall(r"^ +([0-9.]+) MB  \S+ \S+  URL$", users.run("empty", "hpss-mirrors").out, re.MULTILINE)
    assert float(size) >= 0.4
    none = users.url("")[:-4] + "x"
    for words in (["--clear"], []):
        said_of_none = users.run("empty", "hpss-mirrors", *words, none)
        assert (said_of_none.status, said_of_none.out, said_of_none.err) == (0, "", f"There is no mirror of {none}.\n")
    assert len(kept(users)) == 1
    branch = f"{users.url('')},branch=trunk"
    assert users.run("empty", "hpss-mirrors", "--clear", branch).out.endswith("removed\n")
    assert kept(users) == []
    read(users)
    assert users.run("empty", "hpss-mirrors", "--clear").status == 0
    assert kept(users) == []
    assert users.run("empty", "hpss-mirrors", "file:///tmp").status == 3


def test_a_large_history_is_announced_once(users: Users) -> None:
    assert users.run("empty", "config", "--scope=breezy", "hpss.large_history=100K").status == 0
    users.forget("empty")
    done = users.run(LIGHT, *WORDS)
    (line,) = said(done)
    assert line.startswith("hpss: receiving the history of URL/trunk")
    assert line.endswith(" MB), only this time; `smartserver cat`, `ls`, `log` and `export` with a URL do not need it")
    assert said(users.run(LIGHT, *WORDS)) == []
    users.forget("empty")
    assert said(users.run(LIGHT, *WORDS, "-q")) == []


def test_a_push_leaves_the_mirror_as_it_was(users: Users) -> None:
    """The push sends revisions of its source, and makes no mirror."""
    users.forget("a")
    users.commit("a", "more")
    assert users.run("a", "push").status == 0
    assert not (users.cache("a") / "smartserver" / "mirrors").exists()


def test_pulls_of_a_part_are_sent_what_is_new_once(users: Users) -> None:
    """The mirror keeps revisions that build on a local branch: that branch's history is copied to it first."""
    assert users.run("", "branch", "-q", "-r", "1", "a", "part").status == 0
    first = users.run("part", "pull", "-r", "2", users.url())
    assert (first.status, first.counts.bytes_down > LARGE) == (0, True), first.said
    for words in (["missing", "--line", users.url()], ["pull", users.url()]):
        assert users.run("part", *words).counts.bytes_down < LITTLE
    assert users.tip("part") == users.tip("a")
