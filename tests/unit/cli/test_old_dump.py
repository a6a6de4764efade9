"""cli.old_dump: what `dump` of the release before wrote is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from builders import KINDS, MAIN, History
from cli_runs import run, why
from test_copying import marker, markers_of, opened, refs

from smartserver.cli.archive import archive_in
from smartserver.cli.errors import CommandError
from smartserver.cli.old_dump import MAGIC
from smartserver.records.system import system_of
from smartserver.vcs.hg.system import HG


def written(
    file: Path, body: bytes, piece: int, maps: Sequence[tuple[str, dict[bytes, bytes]]] = (), **fields: object
) -> str:
    """A dump of these fields of the header, and of others as they mostly are."""
    header: dict[str, object] = {
        "vcs": "git sha1",
        "kinds": KINDS,
        "settings": {"HEAD": MAIN},
        "refs": {},
        "maps": {},
        "rests_on": [],
    }
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


def two_days(folder: Path) -> tuple[History, list[bytes], list[str]]:
    """A dump, and one that rests on it."""
    history = History()
    line = history.line(5)
    days = []
    for name, part, rests_on in (("monday", line[:3], []), ("tuesday", line[3:], [line[2]])):
        body = b"".join(map(history.segment, part))
        tip = {MAIN: [(part[-1], b"", False)]}
        days.append(written(folder / name, body, 500, refs=tip, rests_on=rests_on, segments=len(part)))
    return history, line, days


def test_one_that_rests_on_another(tmp_path: Path) -> None:
    _, line, days = two_days(tmp_path)
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
    _, _, (file, _) = two_days(tmp_path)
    whole = Path(file).read_bytes()
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]
        for damaged in [flipped, whole[:at]]:
            Path(file).write_bytes(damaged)
            with (
                pytest.raises(CommandError, match=rf"^{file} is (damaged (before|at) byte \d+: |not a dump)"),
                archive_in([file]),
            ):
                pass
    Path(file).write_bytes(whole + b"x")
    with pytest.raises(CommandError, match="another length"), archive_in([file]):
        pass
