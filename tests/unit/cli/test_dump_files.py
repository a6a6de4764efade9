"""cli.dump, cli.old_dump: the file that `dump` writes: what is replaced, and what is left as it was; and a dump of the
release before, which is loaded."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from builders import KINDS, MAIN, History
from cli_runs import flip, opened, pack_of, refs, run, stored, why
from needs import needs
from test_copying import marker, markers_of

from smartserver.cli import dump as dump_command
from smartserver.cli import load as load_command
from smartserver.cli.archive import archive_in
from smartserver.cli.errors import CommandError
from smartserver.cli.old_dump import MAGIC
from smartserver.records.system import system_of
from smartserver.vcs.hg.system import HG


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


def test_a_damaged_dump_is_no_base(source: tuple[Path, History], tmp_path: Path) -> None:
    """Its missing parts would be missing for good."""
    file = tmp_path / "x"
    assert run("dump", str(source[0]), str(file)).exit_code == 0
    flip(file, 1600)  # In the pack.
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
    for words in (("load", tmp_path / "absent", tmp_path / "x"), ("dump", "hpss://localhost:1/none", tmp_path / "a/x")):
        assert isinstance(run(*words).exception, FileNotFoundError)
    assert "does not exist" in why(run("dump", str(tmp_path / "nothing"), str(tmp_path / "y")))
    assert not (tmp_path / "y").exists()
    assert run("dump", "a", "b", "c").exit_code == 2


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_refused(source: tuple[Path, History], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(shown))
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO()))
    for command in (dump_command.command, load_command.command):
        with pytest.raises(CommandError, match="terminal: name a FILE, or use a pipe"):
            command.main([str(source[0])], standalone_mode=False, obj=frozenset())
    assert shown.getvalue() == b""


@needs("root")
def test_root_may_dump_the_repository_of_another_into_its_own_folder(tmp_path: Path) -> None:
    folder, vault = tmp_path / "source", tmp_path / "vault"
    stored(folder, 2)
    vault.mkdir(0o700)
    for each in (folder, *folder.rglob("*")):
        os.chown(each, 65534, 65534)
    words = [sys.executable, "-m", "smartserver.cli.main", "dump", str(folder), str(vault / "x")]
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    assert subprocess.run(words, check=True, capture_output=True).stderr == b""
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    assert {each.stat().st_uid for each in folder.rglob("*")} == {65534}
    assert run("verify", str(vault / "x")).stdout.startswith("1 pack, 2 revisions, ")


# -- of the release before


def written(
    file: Path, body: bytes, piece: int, maps: Sequence[tuple[str, dict[bytes, bytes]]] = (), **fields: object
) -> str:
    """A dump of these fields of the header, and of others as they mostly are."""
    header: dict[str, object] = {"vcs": "git sha1", "kinds": KINDS, "settings": {"HEAD": MAIN}}
    header |= {"refs": {}, "maps": {}, "rests_on": []}
    header |= {"segments": 0, "size": len(body), **fields}
    made = MAGIC
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    blocks = [(b"H", msgspec.msgpack.encode(header)), *((b"R", each) for each in pieces)]
    blocks += [*((b"M", msgspec.msgpack.encode(page)) for page in maps), (b"E", b"")]
    for kind, content in blocks:
        made += kind + len(content).to_bytes(4, "little") + content
        made += hashlib.blake2b(made, digest_size=32).digest()
    file.write_bytes(made)
    return str(file)


def two_days(folder: Path) -> tuple[list[bytes], list[str]]:
    """A dump, and one that rests on it."""
    history = History()
    line = history.line(5)
    days = []
    for name, part, rests_on in (("monday", line[:3], []), ("tuesday", line[3:], [line[2]])):
        body = b"".join(map(history.segment, part))
        tip = {MAIN: [(part[-1], b"", False)]}
        days.append(written(folder / name, body, 500, refs=tip, rests_on=rests_on, segments=len(part)))
    return line, days


def test_one_that_rests_on_another(tmp_path: Path) -> None:
    line, days = two_days(tmp_path)
    there = tmp_path / "there"
    assert why(run("load", days[1], str(there))) == (f"{days[1]} continues an earlier dump: name that dump before it")
    assert run("load", days[0], str(there)).stdout.startswith("3 revisions, 1 ref (a new repository)")
    assert refs(there) == {MAIN: line[2]}
    assert run("load", *days, str(there)).stdout.startswith("2 revisions, 1 ref\n")
    assert refs(there) == {MAIN: line[4]}
    assert opened(there).state.settings == {"HEAD": MAIN}
    assert run("verify", str(there)).stdout.endswith(": all well\n")


def test_maps_that_come_last(tmp_path: Path) -> None:
    every = dict(sorted(marker(number) for number in range(4)))
    pages = [("obsolete", dict(list(every.items())[at : at + 2])) for at in (0, 2)]
    file = written(tmp_path / "x", b"", 1, pages, vcs=HG, kinds=list(system_of(HG).kinds), settings={})
    assert run("load", file, str(tmp_path / "there")).stdout.startswith("0 revisions, 0 refs, 4 entries of maps")
    assert markers_of(tmp_path / "there") == every


def test_each_flipped_byte_and_each_missing_end_is_one_error(tmp_path: Path) -> None:
    _, (file, _) = two_days(tmp_path)
    whole = Path(file).read_bytes()
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
        for damaged in [flipped, whole[:at]]:
            Path(file).write_bytes(damaged)
            with pytest.raises(CommandError, match=rf"^{file} is (damaged (before|at) byte \d+: |not a dump)"):
                archive_in([file]).__enter__()
    Path(file).write_bytes(whole + b"x")
    with pytest.raises(CommandError, match="its length differs"):
        archive_in([file]).__enter__()
