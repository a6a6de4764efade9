"""cli.dump: the file that it writes: what is replaced, and what is left as it was."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from builders import History
from cli_runs import run, why
from needs import needs
from stored import pack_of, stored

from smartserver.cli import dump as dump_command
from smartserver.cli import load as load_command
from smartserver.cli.errors import CommandError


def test_a_dump_that_fails_leaves_what_was_there(source: tuple[Path, History], tmp_path: Path) -> None:
    folder, _ = source
    pack = pack_of(folder)
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[:100])
    out = tmp_path / "out"
    out.mkdir()
    assert str(folder) in why(run("dump", str(folder), str(out / "x")))
    assert list(out.iterdir()) == []
    (out / "x").write_text("the one of yesterday")
    assert run("dump", str(folder), str(out / "x")).exit_code == 1
    assert [(each.name, each.read_text()) for each in out.iterdir()] == [("x", "the one of yesterday")]


def test_the_folder_is_checked_first(tmp_path: Path) -> None:
    result = run("dump", "hpss://localhost:1/none", str(tmp_path / "absent/x"))
    assert isinstance(result.exception, FileNotFoundError)


def test_a_damaged_dump_is_no_base(source: tuple[Path, History], tmp_path: Path) -> None:
    """Its missing parts would be missing for good."""
    file = tmp_path / "x"
    assert run("dump", str(source[0]), str(file)).exit_code == 0
    content = bytearray(file.read_bytes())
    content[1600] ^= 1  # In the pack.
    file.write_bytes(content)
    result = run("dump", "--since", str(file), str(source[0]), str(tmp_path / "y"))
    assert why(result).startswith(f"{file}: packs/")
    assert not (tmp_path / "y").exists()


def test_what_cannot_be(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_text("else")
    assert why(run("load", str(odd), str(tmp_path / "x"))) == f"{odd} is not a dump of smartserver"
    with tarfile.open(odd, "w") as other:
        other.add(Path(__file__), "README")
    assert why(run("load", str(odd), str(tmp_path / "x"))) == f"{odd} is not a dump of smartserver"
    assert not (tmp_path / "x").exists()
    absent = run("load", str(tmp_path / "absent"), str(tmp_path / "x"))
    assert isinstance(absent.exception, OSError)
    assert absent.exception.errno == errno.ENOENT
    assert "is not there" in why(run("dump", str(tmp_path / "nothing"), str(tmp_path / "y")))
    assert not (tmp_path / "y").exists()
    assert run("dump", "a", "b", "c").exit_code == 2


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_refused(source: tuple[Path, History], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(shown))
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    for command, words in ((dump_command.command, [str(source[0])]), (load_command.command, [str(source[0])])):
        with pytest.raises(CommandError, match="terminal: name a FILE, or use a pipe"):
            command.main(words, standalone_mode=False, obj=frozenset())
    assert shown.getvalue() == b""


def files(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@needs("root")
def test_root_may_dump_the_repository_of_another_into_its_own_folder(tmp_path: Path) -> None:
    folder, vault = tmp_path / "source", tmp_path / "vault"
    stored(folder, 2)
    vault.mkdir(0o700)
    for each in (folder, *folder.rglob("*")):
        os.chown(each, 65534, 65534)
    words = [sys.executable, "-m", "smartserver.cli.main", "dump", str(folder), str(vault / "x")]
    before = files(folder)
    assert subprocess.run(words, check=True, capture_output=True).stderr == b""
    assert files(folder) == before
    assert {each.stat().st_uid for each in folder.rglob("*")} == {65534}
    assert run("verify", str(vault / "x")).stdout.startswith("1 pack, 2 revisions, ")
