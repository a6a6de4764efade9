"""transports.tar."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from transport_reads import ReadSuite, populate

from transports.base import Transport
from transports.errors import NotSupported
from transports.local import LocalTransport
from transports.tar import DamagedArchive, TarTransport


def packed(folder: Path, into: Path) -> BinaryIO:
    """The archive of a folder."""
    with tarfile.open(into, "w") as archive:
        archive.add(folder, ".")
    return into.open("rb")


class TestTar(ReadSuite):
    @pytest.fixture
    def filled(self, tmp_path: Path) -> Iterator[Transport]:
        folder = tmp_path / "folder"
        folder.mkdir()
        populate(LocalTransport(folder))
        with packed(folder, tmp_path / "x.tar") as archive:
            yield TarTransport({"x.tar": archive})

    def test_nothing_can_be_changed(self, filled: Transport) -> None:
        with pytest.raises(NotSupported, match="no way to change a file"):
            filled.create("new")


def test_of_several_archives_the_last_counts(tmp_path: Path) -> None:
    archives: dict[str, BinaryIO] = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "log").mkdir(parents=True)
        (folder / "log" / name).write_text(name)
        (folder / "both").write_text(name)
        archives[name] = packed(folder, tmp_path / f"{name}.tar")
    both = TarTransport(archives)
    assert (both.get("both"), both.get("log/one"), both.list_directory("log")) == (b"two", b"one", ["one", "two"])
    for archive in archives.values():
        archive.close()


def test_each_cut_and_each_flipped_byte_of_a_header_is_one_error(tmp_path: Path) -> None:
    file = tmp_path / "x.tar"
    headers = []
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in ("format", "log/1"):
            member = tarfile.TarInfo(name)
            member.size = 600
            headers.append(archive.offset)
            archive.addfile(member, io.BytesIO(name.encode() * 200))
        end = archive.offset + 2 * tarfile.BLOCKSIZE
    whole = file.read_bytes()[:end]
    # Two bytes behind the sum of a header say nothing.
    flips = [at + each for at in headers for each in range(tarfile.BLOCKSIZE) if each not in (154, 155)]
    flips += [end - 1024, end - 1]
    for damaged in [whole[:at] for at in range(0, end, 100)] + [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in flips
    ]:
        file.write_bytes(damaged)
        with file.open("rb") as opened, pytest.raises(DamagedArchive, match=r"^x is damaged at byte \d+: "):
            TarTransport({"x": opened})
    file.write_bytes(whole)
    with file.open("rb") as opened:
        assert TarTransport({"x": opened}).list_directory("") == ["format", "log"]
