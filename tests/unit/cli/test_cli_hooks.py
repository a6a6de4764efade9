"""smartserver.cli.hooks, cli.place: hooks are tried for a change that is not made; a mirror is pushed by one; a preview
is read by the commands of the hook that it was made for, and by nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from cli_runs import program, run, stored, why

from smartserver.cli.place import open_store, repository_in
from smartserver.cli.serve_options import check_root
from smartserver.records.model import RevisionId
from smartserver.store.preview_folder import NEW, PREVIEW, PreviewedStore

RULE = '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "admin"\n'


@pytest.fixture
def line(tmp_path: Path) -> list[RevisionId]:
    """A repository of three revisions, at `served/project`."""
    (tmp_path / "served").mkdir()
    return list(stored(tmp_path / "served" / "project", 3).parents)


def access(folder: Path, text: str) -> Path:
    file = folder / "access.toml"
    file.write_text(RULE + text)
    return file


def test_a_hook_is_run_for_the_change_of_a_ref(tmp_path: Path, line: list[RevisionId]) -> None:
    log = 'smartserver log -q "$SMARTSERVER_NEW" | wc -l'
    hook = program(tmp_path / "check", f"cat > {tmp_path}/told; {log}; test ! -e {tmp_path}/no")
    file = access(tmp_path, f'[[hooks]]\npath = "pro*"\nbefore = ["{hook}"]\n')
    words = ("hooks", "test", file, tmp_path / "served", "project")
    done = run(*words, "--ref", "main", "--user", "anna")
    assert (done.exit_code, done.output) == (0, f"before {hook}: accepts\n")
    told = json.loads((tmp_path / "told").read_text())
    assert (told["path"], told["user"], told["repository"]) == ("project", "anna", "changed")
    assert told["changes"] == [{"ref": "refs/heads/main", "old": [line[1].hex()], "new": [line[2].hex()]}]
    (tmp_path / "no").touch()
    done = run(*words)
    assert (done.exit_code, done.output) == (1, f"before {hook}: refuses: 3\n")
    (change,) = json.loads((tmp_path / "told").read_text())["changes"]
    assert change == {"ref": "refs/heads/example", "old": [], "new": [line[2].hex()]}
    assert "there is no ref 'other'; there is refs/heads/main" in why(run(*words, "--ref", "other"))


def test_receivers_are_told_when_that_is_asked_for(tmp_path: Path, line: list[RevisionId]) -> None:
    hook = program(tmp_path / "check", f"cat > {tmp_path}/told; test ! -e {tmp_path}/no || exit 5")
    file = access(tmp_path, f'[[hooks]]\npath = "**"\nafter = ["{hook}"]\n')
    words = ("hooks", "test", file, tmp_path / "served", "project")
    assert run(*words).output.startswith(f'after {hook}: would be told {{"path": "project", ')
    assert not (tmp_path / "told").exists()
    assert run(*words, "--send", "-o", "ci.skip").output == f"after {hook}: was told\n"
    told = json.loads((tmp_path / "told").read_text())
    assert (told["path"], told["options"]) == ("project", ["ci.skip"])
    (tmp_path / "no").touch()
    done = run(*words, "--send")
    assert (done.exit_code, done.output) == (1, f"after {hook}: fails: it ended with status 5\n")


def test_what_cannot_be_tried(tmp_path: Path, line: list[RevisionId]) -> None:
    file = access(tmp_path, '[[hooks]]\npath = "project"\nbefore = ["/nowhere/check"]\n')
    assert run("hooks", "test", file, tmp_path / "served", "other").output == f"{file} has no hook for other\n"
    said = why(run("hooks", "test", file, tmp_path / "served", "project"))
    assert "/nowhere/check cannot be run: No such file" in said


def test_a_mirror_is_pushed(tmp_path: Path, line: list[RevisionId], monkeypatch: pytest.MonkeyPatch) -> None:
    """Again it has what is new, and no more what is gone."""
    target = tmp_path / "mirror.git"
    words = ("hooks", "mirror", "--folder", tmp_path / "clones", target)
    monkeypatch.delenv("SMARTSERVER_REPOSITORY", raising=False)
    assert "SMARTSERVER_REPOSITORY names no folder" in why(run(*words))
    monkeypatch.setenv("SMARTSERVER_REPOSITORY", str(tmp_path / "served" / "project"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def git(*options: str) -> str:
        return subprocess.run(["git", *options], check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    git("init", "-q", "--bare", str(target))
    assert run(*words).exit_code == 0
    assert git("-C", str(target), "rev-parse", "main") == f"{line[2].hex()}\n"
    git("-C", str(target), "branch", "other", "main")
    git("-C", str(target), "update-ref", "-d", "refs/heads/main")
    assert run(*words).exit_code == 0
    assert git("-C", str(target), "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"
    assert "git push failed with status" in why(run(*words[:-1], tmp_path / "nowhere.git"))
    assert os.listdir(tmp_path / "clones")


# -- previews


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
