"""smartserver.cli.place: a preview is read by the commands of the hook that it was made for, and by nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from cli_runs import run
from stored import stored

from smartserver.cli.place import open_store, repository_in
from smartserver.cli.serve_options import check_root
from smartserver.store.preview_folder import NEW, PREVIEW, PreviewedStore


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the file of a preview, whose packs are in another one, too."""
    monkeypatch.delenv(NEW, raising=False)
    stored(tmp_path / "project")
    shutil.copytree(tmp_path / "project", tmp_path / "other")
    store = PreviewedStore(f"file://{tmp_path}/other", str(tmp_path / "copies"), 1)
    (tmp_path / "project" / PREVIEW).write_bytes(msgspec.json.encode(store))
    return tmp_path / "project"


def test_the_file_of_a_preview_is_obeyed_where_a_hook_was_told_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEW, str(folder))
    for pack in (folder / "packs").iterdir():
        pack.unlink()
    with repository_in(str(folder)) as repository:
        assert repository.verify().problems == ()
    assert run("log", "-q", folder).exit_code == 0
    assert (tmp_path / "copies").exists()


def test_the_file_of_a_preview_is_not_obeyed_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may have written it."""
    monkeypatch.setenv(NEW, str(tmp_path / "other"))
    assert [run(*words, folder).exit_code for words in (["verify"], ["pack"], ["log", "-q"])] == [0, 0, 0]
    (folder / PREVIEW).write_bytes(b"{}")
    assert run("verify", folder).exit_code == 0
    assert not (tmp_path / "copies").exists()


def test_a_server_never_obeys_the_file_of_a_preview(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NEW, str(folder))
    (folder / PREVIEW).write_bytes(b"{}")
    check_root(folder, makes=True)
    assert open_store(str(folder)).get(PREVIEW) == b"{}"
