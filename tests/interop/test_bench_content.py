"""bench.content, bench.content_null and bench.content_wide on tiny histories (bench.linear): they run, count, and tell
what came otherwise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from bench import content, content_null, content_wide, linear
from benches import bench, check_met

from smartserver.cli.errors import CommandError

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.interop,
    pytest.mark.unbanned("a bench does the same many times, each time as an operation of its own"),
]

needs_svn = pytest.mark.skipif(
    not all(map(shutil.which, ("svn", "svnadmin", "svnserve", "strace", "fincore"))), reason="needs svn and strace"
)

IN_MEMORY = (
    subprocess.run(
        ["stat", "--file-system", "--format=%T", tempfile.gettempdir()], capture_output=True, text=True, check=True
    ).stdout.strip()
    == "tmpfs"
)
"""Whether temporary files are on no disk: their pages stay in memory."""


@pytest.fixture(autouse=True)
def no_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a disk nothing is cold, and that is not looked at."""
    if IN_MEMORY and request.function is not test_pages_that_stay:
        monkeypatch.setattr(content, "drop_pages", lambda places: None)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A repository with what a Subversion dump says in a way of its own: modes, links, folders that come and go."""
    folder = tmp_path / "odd"

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)

    def commit() -> None:
        git("add", "--all")
        git("commit", "--quiet", "-m", "changed\r\nand so on")

    folder.mkdir()
    git("init", "--quiet", "--initial-branch=main")
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "b" / "c" / "deep").write_bytes(b"deep\r\n")
    (folder / 'odd "n\tame ü').write_bytes(b"odd\n")
    (folder / "program").write_bytes(b"#!/bin/sh\n")
    (folder / "link").symlink_to("program")
    commit()
    shutil.rmtree(folder / "a" / "b")
    (folder / "a" / "b").write_bytes(b"a file now\n")
    (folder / "program").chmod(0o755)
    (folder / "link").unlink()
    (folder / "link").write_bytes(b"no link\n")
    commit()
    git("checkout", "--quiet", "-b", "side", "HEAD~1")
    (folder / "beside").write_bytes(b"beside\n")
    commit()
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "side")
    (folder / "a" / "b").unlink()
    (folder / "program").unlink()
    (folder / "program").symlink_to("link")
    commit()
    return folder


@needs_svn
def test_all_rows_beside_subversion(temporary: Path, odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "RATIO", 1e6)
    monkeypatch.setattr(content, "READ", 1e6)
    monkeypatch.setattr(content, "PUSHES", 2)
    result = bench(temporary, "content", odd, "--repeat", "1")
    rows = [
        f"{what}, {packing}, "
        for what in (content.EXPORT, content.QUIET, content.VERBOSE, content.VERIFY, content.DUMP)
        for packing in ("packed", "unpacked")
    ]
    # Without a disk a program may still be read from one, and that is counted.
    found = [line for line in result.stdout.splitlines() if "from the disk" in line and line.endswith("ok")]
    check_met(result, "4 revisions, loopback", 4 * 5 + 1 + (len(found) if IN_MEMORY else 2), [*rows, "load, once"])
    commands = subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(temporary) not in commands, "a server was left behind"
    for packing in ("packed", "unpacked"):
        assert re.search(rf"export, {packing}, first: opened.* [1-9]\d*, [1-9].* [1-9]\d*, [1-9]", result.stdout)


@needs_svn
def test_a_long_history_and_a_difference(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "RATIO", -1)
    monkeypatch.setattr(linear, "tree_of", lambda *_: "another")
    monkeypatch.setattr(content, "PUSHES", 1)
    result = bench(temporary, "content", "-n", "3", "--repeat", "1")
    assert result.exit_code == 1
    assert "log -v -n 100, packed, cold" in result.stdout
    assert "wrong: revision 3 of svn is not the tree of git's" in result.stderr


def test_pages_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(10_000))
    if not IN_MEMORY:
        content.drop_pages([tmp_path, tmp_path / "none"])
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    (tmp_path / "file").read_bytes()
    with pytest.raises(CommandError, match=r"12288 bytes of .* stay in memory"):
        content.drop_pages([tmp_path])


def test_the_cost_of_the_server(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LARGE": (3, 70_000), "SMALL": (5, 100), "REVISIONS": 7}.items():
        monkeypatch.setattr(content_null, name, value)
    for name in ("EXPORTED", "COMPRESSED", "LOGGED", "PULLED"):
        monkeypatch.setattr(content_null, name, 0)
    result = bench(temporary, "content-null", "--requests", "2")
    rows = [
        "export, 3 files of 68 KB, caches of 128 MB: MB of a CPU second, the first time",
        "pull, 4 clients, 1 process: MB of a second",
        "export, 4 clients, 2 processes: MB of a CPU second",
        "export, compressed (zstd 3), caches of 1024 MB: times smaller",
        "log -q, 7 revisions: revisions of a second, to the command",
    ]
    check_met(result, "CPU of the server, 2 requests", 9, rows)


@needs_svn
def test_a_wide_tree(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_wide, "RATIO", 1e6)
    result = bench(temporary, "content-wide", "-n", "12", "--repeat", "1")
    check_met(result, "12 files, ", 3, ["files a second, git archive | tar x", "memory of the client"])
