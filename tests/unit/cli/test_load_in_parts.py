"""client.load: a dump that is longer than a part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import MAIN, History, push
from cli_runs import run, why
from stored import grow
from test_copying import opened, refs

from smartserver.client import load
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


@pytest.mark.unbanned("resend: the target lost what it had")
def test_a_long_dump_for_a_target_that_was_restored(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client remembers tips that are gone."""
    folder, history = source
    there, where = target
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "PART", 1000)
    assert run("dump", str(folder), str(tmp_path / "monday")).exit_code == 0
    assert run("load", str(tmp_path / "monday"), there).exit_code == 0
    shutil.copytree(where, tmp_path / "backup")
    grow(folder, history, 6)
    assert run("dump", str(folder), str(tmp_path / "tuesday")).exit_code == 0
    for _ in range(2):
        done = run("load", str(tmp_path / "tuesday"), there)
        assert done.stdout == "6 revisions, 1 ref\n    refs/heads/main\n", done.exception
        assert refs(where) == refs(folder)
        shutil.rmtree(where)
        shutil.copytree(tmp_path / "backup", where)


def test_a_long_dump_is_not_sent_where_all_refs_are_refused(
    source: tuple[Path, History], target: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, history = source
    there, where = target
    assert run("dump", str(folder), str(tmp_path / "monday")).exit_code == 0
    assert run("load", str(tmp_path / "monday"), there).exit_code == 0
    monkeypatch.setattr(load, "PART", 1000)
    (diverged,) = history.line(1, refs(folder)[MAIN], "elsewhere")
    push(PackRepository(LocalTransport(where)), history, [diverged], {MAIN: diverged})
    grow(folder, history, 6, refs(folder)[MAIN])
    assert run("dump", str(folder), str(tmp_path / "tuesday")).exit_code == 0
    result = run("load", str(tmp_path / "tuesday"), there)
    assert "'refs/heads/main' has diverged" in why(result)
    assert refs(where) == {MAIN: diverged}
    assert opened(where).graph.count == 6
    assert run("load", "--force", str(tmp_path / "tuesday"), there).stdout.startswith("6 revisions, 1 ref\n")
    assert refs(where) == refs(folder)
