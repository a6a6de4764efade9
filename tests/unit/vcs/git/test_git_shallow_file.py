"""vcs.git.shallow: the file of shallow commits, and its lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smartserver.vcs.git.shallow import ShallowChange, ShallowFileError, read

ONE, TWO = b"\1" * 20, b"\2" * 20


def lines(*commits: bytes) -> str:
    return "".join([commit.hex() + "\n" for commit in commits])


def test_it_changes_when_that_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "shallow")
    assert read(path) == set()
    with ShallowChange(path, set(), {TWO, ONE}) as change:
        assert Path(change.lock).read_text() == lines(ONE, TWO)
        assert read(path) == set()
        change.commit()
    assert (tmp_path / "shallow").read_text() == lines(ONE, TWO)
    with ShallowChange(path, {ONE, TWO}, {ONE}):
        pass
    assert read(path) == {ONE, TWO}
    with ShallowChange(path, {ONE, TWO}, set()) as change:
        change.commit()
    assert os.listdir(tmp_path) == []


def test_another_process_changed_it(tmp_path: Path) -> None:
    (tmp_path / "shallow").write_text(lines(ONE))
    with pytest.raises(ShallowFileError, match="another process changed it; try again"):
        ShallowChange(str(tmp_path / "shallow"), set(), {TWO})
    assert os.listdir(tmp_path) == ["shallow"]


def test_it_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "shallow").write_text("nonsense\n")
    with pytest.raises(ShallowFileError, match="it holds something else than ids"):
        read(str(tmp_path / "shallow"))
