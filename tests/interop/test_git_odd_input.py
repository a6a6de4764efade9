"""Everything in a git repository survives a push and a clone: refs, reachable objects, and the output of `git fsck`. An
object that would break clones is refused, with a line that says why; lesser faults are accepted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Served, Side, environment

pytestmark = pytest.mark.interop

Begin = Callable[[str], Side]

COMMIT = b"author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n"

HEADS = {
    "unborn HEAD": "a git checkout -q --orphan nothing",
    "HEAD on a branch that is gone": "a git checkout -q topic; a git update-ref -d refs/heads/topic",
}


@pytest.mark.parametrize("script", HEADS.values(), ids=HEADS)
def test_an_odd_head(ours: Begin, script: str) -> None:
    side = ours("history")
    side.prepare(script)
    check_there_and_back(side)


TREES = {
    "ten folders in ten folders, twelve times": (12, 10),
    "a thousand folders in each other": (1000, 1),
}


@pytest.mark.parametrize(("depth", "width"), TREES.values(), ids=TREES)
def test_each_tree_is_read_once_however_often_it_is_there(ours: Begin, depth: int, width: int) -> None:
    """Twelve trees have a trillion paths; others are nested deeper than Python nests calls."""
    side = ours("history")
    blob = side.git("a", "hash-object", "-w", "--stdin")  # Of nothing.
    rows = f"100644 blob {blob}\tf\n"
    for _ in range(depth):
        made = subprocess.run(
            ["git", "mktree"], cwd=side.folder / "a", env=environment(side.folder), input=rows.encode(),
            capture_output=True, check=True,
        ).stdout.decode().strip()  # fmt: skip
        rows = "".join(f"040000 tree {made}\td{number}\n" for number in range(width))
    side.git("a", "update-ref", "refs/heads/many", side.git("a", "commit-tree", "-m", "x", made))
    done = side.run('a git push -q "$URL" many; a git ls-remote -q "$URL" many')
    assert (done.status, done.err) == (0, "")
    assert done.out.split()[0] == side.git("a", "rev-parse", "many")


ODD_REFS = [
    b"refs/heads/caf\xe9",
    "refs/heads/größe".encode(),
    b"refs/tags/\xff\xfe",
    b"refs/odd/place",
    b"refs/heads/HEAD",
    b"refs/heads/@",
    b"refs/heads/-x",
    b"refs/heads/a'b\"c$d`e;f&g|h,i%s{j}",
    b"refs/remotes/origin/x",
    b"refs/heads/" + b"/".join([b"x" * 200] * 5),
]


def test_odd_refs(ours: Begin) -> None:
    side = ours("history")
    tip = side.git("a", "rev-parse", "main").encode()
    for name in ODD_REFS:
        raw(side, b"update-ref", name, tip)
    check_there_and_back(side)


def test_a_ref_whose_name_is_too_long_is_refused_alone(ours: Begin) -> None:
    side = ours("history")
    long = b"refs/heads/" + b"/".join([b"x" * 200] * 6)
    raw(side, b"update-ref", long, side.git("a", "rev-parse", "main").encode())
    result = side.run("a git push origin 'refs/heads/*'")
    assert result.status == 1
    assert "(its name has 1216 bytes, expected no more than 1024)" in result.err
    assert "* [new branch]      main -> main" in result.err
    assert not [line for line in result.err.splitlines() if line.startswith("fatal: ")]


ODD_COMMITS = {
    "no mail": b"author A U Thor 1 +0000\ncommitter C <> 1 +0000\n\nm",
    "no name, an encoding": b"author <> 0 +0000\ncommitter  <x> 1 +9999\nencoding ISO-8859-1\n\nlatin \xe9\xff\n",
    "signed, unknown headers": COMMIT
    + b"something else\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ\n -----END PGP SIGNATURE-----\nmergetag object 0\n"
    + b" type commit\n\nsigned",
    "dates beyond all": b"author A <a@b> 99999999999999999999 +0000\ncommitter C <c@e> -5 -2500\n\n",
    "no message": COMMIT,
    "a nul": COMMIT + b"\nnul \0 inside",
    "two authors": b"author B <b@b> 1 +0000\n" + COMMIT + b"\nm",
    "no author": b"\nm",
    "a huge message": COMMIT + b"\n" + b"a line of a huge message\n" * 400_000,
}


def test_odd_commits(ours: Begin) -> None:
    side = ours("history")
    tree, parent = (side.git("a", "rev-parse", name).encode() for name in ("main^{tree}", "main"))
    for number, rest in enumerate(ODD_COMMITS.values()):
        commit = write(side, b"commit", b"tree %s\nparent %s\n" % (tree, parent) + rest)
        raw(side, b"update-ref", b"refs/heads/odd%d" % number, commit)
    check_there_and_back(side)


ODD_TREES = {
    "a group may write": b"100664 f\0%(blob)s",
    "modes with zeros": b"0100644 f\0%(blob)s040000 t\0%(tree)s",
    "nothing": b"",
    "a submodule and a link": b"120000 l\0%(blob)s160000 s\0%(blob)s",
    "a name that is no text": b"100644 \xff\xfe\xe9\0%(blob)s",
    "odd modes": b"100000 f\0%(blob)s100777 g\0%(blob)s",
    "a long name": b"100644 " + b"n" * 5000 + b"\0%(blob)s",
}


def test_odd_trees(ours: Begin) -> None:
    side = ours("history")
    ids = {
        name: bytes.fromhex(side.git("a", "rev-parse", f"main{at}"))
        for name, at in (("blob", ":one"), ("tree", "^{tree}"))
    }
    for number, odd in enumerate(ODD_TREES.values()):
        for name, id_ in ids.items():
            odd = odd.replace(b"%%(%s)s" % name.encode(), id_)
        commit = write(side, b"commit", b"tree %s\n" % write(side, b"tree", odd) + COMMIT + b"\nodd")
        raw(side, b"update-ref", b"refs/heads/odd%d" % number, commit)
    check_there_and_back(side)


# -- faults that git fsck finds

BAD_TIMEZONE = COMMIT.replace(b"+0000\nc", b"+051800\nc")
DOTGIT = (b".git",)
"""The arguments of `odd_commit` for a file that no tree may have: git calls the fault hasDotgit."""


def odd_commit(side: Side, name: bytes = b"f", rest: bytes = COMMIT) -> str:
    """Make branch `odd` of user a, with a commit of one file."""
    blob = bytes.fromhex(side.git("a", "rev-parse", "main:one"))
    tree = write(side, b"tree", b"100644 %s\0%s" % (name, blob))
    commit = write(side, b"commit", b"tree %s\n" % tree + rest + b"\nodd")
    raw(side, b"update-ref", b"refs/heads/odd", commit)
    return commit.decode()


def test_a_tree_that_harms_is_refused_and_the_rest_can_be_cloned(ours: Begin) -> None:
    side = ours("shared")
    commit = odd_commit(side, *DOTGIT)
    done = side.run('a git push "$URL" odd')
    assert done.status not in (0, None), done.said
    (line,) = [each for each in done.err.splitlines() if not each.startswith("error: failed to push")]
    assert f"revision {commit} is not valid: hasDotgit: " in line
    side.prepare('as c git clone -q --mirror "$URL" c')
    assert "odd" not in side.git("c", "for-each-ref")


def test_a_fault_of_an_old_history_is_taken_with_a_warning(ours: Begin) -> None:
    side = ours("history")
    odd_commit(side, rest=BAD_TIMEZONE)
    done = side.prepare('a git push "$URL" odd main')
    (line,) = [each for each in done.err.splitlines() if each.startswith("hpss: ")]
    assert line.startswith("hpss: URL: taken with faults that git fsck finds: badTimezone in "), line
    check_there_and_back(side)


@pytest.mark.parametrize(
    ("options", "odd", "why"),
    [
        (("strict",), (b"f", BAD_TIMEZONE), "badTimezone: its author is"),
        (("strict", "--fsck-ignore", "badTimezone"), (b"f", BAD_TIMEZONE), ""),
        (("off",), DOTGIT, ""),
    ],
)
def test_what_is_refused_is_the_choice_of_the_server(
    tmp_path: Path, ours: Begin, options: tuple[str, ...], odd: tuple[bytes, ...], why: str
) -> None:
    """Without checks the server accepts harmful objects silently, as `git -c receive.fsckObjects=false` does."""
    side = ours("history")
    commit = odd_commit(side, *odd)
    served = Served(tmp_path, "--anonymous", "write", "--fsck", *options)
    try:
        done = side.run(f'a git push "{served.url("x")}" odd')
        listed = side.run(f'a git ls-remote "{served.url("x")}"').out
    finally:
        served.close()
    assert ((done.status == 0), commit in listed) == (not why, not why), done.said
    assert why in done.err
    assert "taken with faults" not in done.err


def test_an_id_that_is_no_fault(ours: Begin) -> None:
    side = ours("nothing")
    done = side.run("as a smartserver serve . --fsck-ignore hasDotGit")
    assert done.status not in (0, None)
    assert "--fsck-ignore 'hasDotGit': no such fault; there are badDate, " in done.err
    assert len(done.err.splitlines()) == 1


def raw(side: Side, *arguments: bytes, given: bytes = b"") -> bytes:
    """Return the output of a git command in user a's repository."""
    done = subprocess.run(
        [b"git", *arguments],
        cwd=side.folder / "a",
        env=environment(side.folder),
        input=given,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(side: Side, kind: bytes, content: bytes) -> bytes:
    """Write an object without git's checks, and return its id."""
    return raw(side, b"hash-object", b"--literally", b"-w", b"-t", kind, b"--stdin", given=content).strip()


def check_there_and_back(side: Side) -> None:
    """Push and clone all refs, and check that refs, objects and complaints are the same."""
    side.prepare('a git push -q --mirror "$URL"; as c git clone -q --mirror "$URL" c')
    assert seen(side, "a") == seen(side, "c")


def seen(side: Side, user: str) -> list[str]:
    """Return refs, objects, and the status and output of `git fsck`."""
    side.prepare(f"{user} git repack -adq")  # The check's status tells loose objects from packed ones.
    result = side.run(
        f"""
        {user} git for-each-ref --format='%(objectname) %(refname)'
        {user} git rev-list --objects --all | sort
        {user} git fsck --strict --no-dangling --no-progress 2>&1 | grep -v '^notice: HEAD points to an unborn' || true
        {user} git fsck --strict --no-dangling --no-progress >/dev/null 2>&1 || echo "status $?"
        """
    )
    assert result.status == 0, result.said
    return result.out.splitlines()
