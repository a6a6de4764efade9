"""What would break everybody's clone is refused at the push, with a line that says why; lesser faults are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Served, Side
from test_git_odd_input import COMMIT, check_there_and_back, raw, write

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

HARMFUL = {
    "hasDotgit": b"100644 .git\0%(blob)s",
    "hasDotdot": b"40000 ..\0%(tree)s",
    "gitmodulesUrl": b"100644 .gitmodules\0%(modules)s",
}


def odd_commit(side: Side, tree: bytes, rest: bytes = COMMIT) -> str:
    """Branch `odd` of user a: a commit with this tree."""
    modules = write(side, b"blob", b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=sh\n')
    ids = {
        b"blob": side.git("a", "rev-parse", "main:one").encode(),
        b"tree": side.git("a", "rev-parse", "main^{tree}").encode(),
        b"modules": modules,
    }
    for name, key in ids.items():
        tree = tree.replace(b"%%(%s)s" % name, bytes.fromhex(key.decode()))
    made = write(side, b"tree", tree)
    commit = write(side, b"commit", b"tree %s\n" % made + rest + b"\nodd")
    raw(side, b"update-ref", b"refs/heads/odd", commit)
    return commit.decode()


@pytest.mark.parametrize(("fault", "tree"), HARMFUL.items(), ids=HARMFUL)
def test_a_tree_that_harms_is_refused_and_the_rest_can_be_cloned(ours: Begin, fault: str, tree: bytes) -> None:
    side = ours("shared")
    commit = odd_commit(side, tree)
    done = side.run('a git push "$URL" odd')
    assert done.status not in (0, None), done.said
    (line,) = [each for each in done.err.splitlines() if not each.startswith("error: failed to push")]
    assert f"revision {commit}: {fault}: " in line
    side.prepare('as c git clone -q "$URL" c')
    side.prepare('as c git clone -q --mirror "$URL" d')
    assert "odd" not in side.git("d", "for-each-ref")


TOLERATED = {
    "zeroPaddedFilemode": (b"0100644 f\0%(blob)s", COMMIT),
    "badTimezone": (b"100644 f\0%(blob)s", COMMIT.replace(b"+0000\nc", b"+051800\nc")),
}


@pytest.mark.parametrize(("fault", "parts"), TOLERATED.items(), ids=TOLERATED)
def test_a_fault_of_an_old_history_is_taken_with_a_warning(ours: Begin, fault: str, parts: tuple[bytes, bytes]) -> None:
    side = ours("history")
    odd_commit(side, *parts)
    done = side.run('a git push "$URL" odd main')
    assert done.status == 0, done.said
    (line,) = [each for each in done.err.splitlines() if each.startswith("hpss: ")]
    assert line.startswith(f"hpss: URL: taken with faults that git fsck finds: {fault} in "), line
    check_there_and_back(side)


def test_strict_refuses_them_and_what_is_ignored_is_taken(tmp_path: Path, ours: Begin) -> None:
    side = ours("history")
    odd_commit(side, *TOLERATED["badTimezone"])
    options = {"strict": ("--fsck", "strict"), "ignored": ("--fsck", "strict", "--fsck-ignore", "badTimezone")}
    for name, said in options.items():
        (tmp_path / name).mkdir()
        served = Served(tmp_path / name, "--anonymous", "write", *said)
        try:
            done = side.run(f'a git push "{served.url("x")}" odd')
        finally:
            served.close()
        assert ("badTimezone: its author is" in done.err) == (name == "strict"), done.said
        assert (done.status == 0) == (name == "ignored")
        assert "taken with faults" not in done.err


def test_no_fault_refuses_a_push_where_the_checks_are_off(tmp_path: Path, ours: Begin) -> None:
    """The server takes what harms clients, as `git -c receive.fsckObjects=false` does, and says nothing."""
    side = ours("shared")
    commit = odd_commit(side, HARMFUL["hasDotgit"])
    for level, status in (("off", 0), ("safe", 1)):
        (tmp_path / level).mkdir()
        served = Served(tmp_path / level, "--anonymous", "write", "--fsck", level)
        try:
            done = side.run(f'a git push "{served.url("x")}" odd')
            assert done.status == status, done.said
            assert "taken with faults" not in done.err
            if level == "off":
                assert commit in side.run(f'a git ls-remote "{served.url("x")}"').out
        finally:
            served.close()


def test_an_id_that_is_no_fault(ours: Begin) -> None:
    side = ours("nothing")
    done = side.run("as a smartserver serve . --fsck-ignore hasDotGit")
    assert done.status not in (0, None)
    assert "--fsck-ignore 'hasDotGit': no such fault; there are badDate, " in done.err
    assert len(done.err.splitlines()) == 1


NAMES = ["refs/heads/a..b", "refs/heads/" + "n" * 251]


@pytest.mark.parametrize("name", NAMES)
def test_a_ref_that_no_client_can_have_is_refused_by_the_server(served: Served, ours: Begin, name: str) -> None:
    """Git's own client sends none of these: sent by `smartserver`'s library."""
    from smartserver.client.call import Client
    from smartserver.client.media.tcp import TcpMedium
    from smartserver.errors import InvalidName
    from smartserver.verbs.branch_create import BranchCreateRequest, branch_create

    side = ours("shared")
    tip = bytes.fromhex(side.git("a", "rev-parse", "main"))
    path = side.url.rpartition("/")[2]
    with Client(lambda: TcpMedium(*served.direct)) as client, pytest.raises(InvalidName):
        client.call(branch_create, BranchCreateRequest(name.encode(), tip), path)
    side.prepare('as c git clone -q --mirror "$URL" c')
