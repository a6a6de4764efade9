"""vcs.git.folder: the objects of a folder are those of git. What is sent: `interop/test_git_stream_commands.py`."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from smartserver.records import limits
from smartserver.records.keys import KeyTable
from smartserver.vcs.git.folder import BadFolder, FolderCommit, FolderTree, commit_text

ODD = [b"a", b"a.b", b"a0", b"sub/x", b"sub.x", b"sub0", b"sub-x/y", b"\xff\xfe", b"new\nline", b"deep/er/and/deeper"]


def write(folder: Path, names: list[bytes]) -> None:
    for name in names:
        place = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(b"text of " + name)


def tree_of_git(folder: Path, object_format: str) -> bytes:
    """The tree that git makes of a folder."""
    git = ["git", "-c", "core.fileMode=true", f"--git-dir={folder}-git", f"--work-tree={folder}"]
    variables = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(
        ["git", "init", "-q", "--bare", f"--object-format={object_format}", f"{folder}-git"], check=True, env=variables
    )
    subprocess.run([*git, "config", "core.bare", "false"], check=True, env=variables)
    subprocess.run([*git, "add", "-f", "-A"], check=True, cwd=folder, env=variables)
    done = subprocess.run([*git, "write-tree"], check=True, cwd=folder, env=variables, capture_output=True)
    return bytes.fromhex(done.stdout.decode())


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_the_tree_is_that_of_git(tmp_path: Path, object_format: str) -> None:
    folder = tmp_path / "folder"
    write(folder, ODD)
    (folder / ".gitignore").write_text("*\n")
    (folder / "a0").chmod(0o744)
    (folder / "link").symlink_to("nowhere")
    (folder / "to-folder").symlink_to("sub")
    (folder / "empty/er").mkdir(parents=True)
    seen: list[tuple[int, int]] = []
    tree = FolderTree(str(folder), f"git {object_format}", lambda size, files: seen.append((files, size)))
    assert seen[-1] == (len(tree.files), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
    assert tree.root == tree_of_git(folder, object_format)
    assert len(tree.files) == len(ODD) + 3
    assert len(tree.keys) == len({file.key for file in tree.files}) + len(tree.trees)


def test_what_other_systems_keep_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [b".git/HEAD", b".hg/store", b".bzr/README", b"file", b"below/.hg/kept"])
    assert sorted(file.path for file in FolderTree(str(tmp_path), "git sha1").files) == [b"below/.hg/kept", b"file"]


def test_what_has_no_place_in_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [b"below/.GIT/HEAD"])
    with pytest.raises(BadFolder, match=r"below/\.GIT: git keeps nothing of this name"):
        FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "below").rename(tmp_path / ".git")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFolder, match="pipe is neither a file nor a link nor a folder"):
        FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "pipe").unlink()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(limits.MAX_RECORD + 1)
    with pytest.raises(BadFolder, match=r"large has 268435457 bytes, expected no more than 268435456 in a file"):
        FolderTree(str(tmp_path), "git sha1")
    monkeypatch.setattr(os, "fstat", lambda _descriptor: os.stat_result((0,) * 10))
    (tmp_path / "large").write_bytes(b"grew")
    with pytest.raises(BadFolder, match="large was changed while it was read"):
        FolderTree(str(tmp_path), "git sha1")


def test_a_file_that_changes_before_it_is_sent(tmp_path: Path) -> None:
    write(tmp_path, [b"a"])
    tree = FolderTree(str(tmp_path), "git sha1")
    (tmp_path / "a").write_bytes(b"other")
    commit = FolderCommit(tree, [], commit_text(tree.root, [], b"A <a@b> 1 +0000", b"", b""), KeyTable())
    with pytest.raises(BadFolder, match="a was changed while it was read; try again"):
        list(commit.segments())


def test_a_file_that_grew_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, [b"a"])
    tree = FolderTree(str(tmp_path), "git sha1")
    with open(tmp_path / "a", "r+b") as file:
        file.truncate(1 << 40)  # More than fits into memory.
    with pytest.raises(BadFolder, match="a was changed while it was read; try again"):
        tree.text(tree.files[0])


def test_more_than_a_commit_may_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    for number in range(8):
        (tmp_path / str(number)).write_bytes(chance.randbytes(1000))
    tree = FolderTree(str(tmp_path), "git sha1")
    commit = FolderCommit(tree, [], commit_text(tree.root, [], b"A <a@b> 1 +0000", b"", b""), KeyTable())
    monkeypatch.setattr(limits, "MAX_TAKEN", 5000)
    with pytest.raises(BadFolder, match=r"more than 5000 bytes \(compressed\).*: import a part of them first"):
        list(commit.segments())
    monkeypatch.setattr(limits, "MAX_TAKEN", 50_000)
    monkeypatch.setattr(limits, "MAX_SEGMENT_TEXT", 5000)
    monkeypatch.setattr(limits, "MAX_ENTRIES", 3)
    with pytest.raises(BadFolder, match="it cannot be one commit"):
        list(commit.segments())
