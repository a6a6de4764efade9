from __future__ import annotations

import pytest
from memory_transport import MemoryTransport
from pack_samples import KINDS, history

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind
from smartserver.store.pack import MAGIC, PackReader, PackWriter, decode_header, encode_header
from transports.base import ReadFile


def content_of(count: int) -> bytes:
    transport = MemoryTransport()
    file = transport.create("pack")
    writer = PackWriter(file, KINDS)
    for revision in history(count):
        writer.append(revision.segment())
    writer.finish()
    return transport.get("pack")


def reader_of(content: bytes, length: int | None = None) -> PackReader:
    transport = MemoryTransport()
    file = transport.create("pack")
    file.write(content)
    return PackReader(transport.open_read("pack"), len(content) if length is None else length, "packs/1.pack")


@pytest.mark.parametrize("kinds", [KINDS, KINDS[:1], (Kind("ü", "sha1-key", False),)])
def test_the_header_says_the_kinds(kinds: tuple[Kind, ...]) -> None:
    header = encode_header(kinds)
    assert decode_header(header + b"segments", "pack") == (kinds, len(header))


def test_a_pack_without_segments() -> None:
    reader = reader_of(content_of(0))
    assert list(reader.segments()) == []


def test_a_shorter_file_than_the_root_says_is_refused() -> None:
    content = content_of(2)
    length = len(content) + 1
    with pytest.raises(CorruptFile, match=rf"packs/1.pack .* {len(content)} bytes, expected {length}"):
        reader_of(content, length)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "0 bytes, a pack's header has 12 or more"),
        (b"PK\3\4" + bytes(40), "begins with"),
        (MAGIC + b"\2" + bytes(40), "version 2 flags 0"),
        (MAGIC + b"\1\1" + bytes(40), "version 1 flags 1"),
        (MAGIC + b"\1\0\x10\0\5" + bytes(20), "the list of kinds"),
        (encode_header(KINDS)[:20] + bytes(16), "the list of kinds"),
        (encode_header(KINDS).replace(b"object", b"obj\xff\xfft") + bytes(16), "the list of kinds"),
        (MAGIC + b"\1\0\x0e\0\0" + bytes(20), "says its header has 14 bytes, but it ends after 13"),
    ],
)
def test_what_is_no_pack_of_this_release_is_named(content: bytes, why: str) -> None:
    with pytest.raises(CorruptFile, match=why):
        reader_of(content)


def test_reading_outside_of_the_segments_is_refused() -> None:
    content = content_of(3)
    reader = reader_of(content)
    for offset, size in ((0, 4), (reader.first - 1, 2), (reader.end - 1, 2), (reader.end, 1), (reader.first, -1)):
        with pytest.raises(CorruptFile, match="outside of the segments"):
            reader.read(offset, size)


def test_a_file_that_became_shorter_is_named() -> None:
    content = content_of(3)

    class Shrunk(ReadFile):
        def __init__(self) -> None:
            self.length = len(content)

        def size(self) -> int:
            return len(content)

        def read_at(self, offset: int, size: int) -> bytes:
            return content[: self.length][offset : offset + size]

        def close(self) -> None:
            pass

    file = Shrunk()
    reader = PackReader(file, len(content), "packs/1.pack")
    file.length = 100
    with pytest.raises(CorruptFile, match=r"packs/1.pack at byte 90: 10 bytes, expected 20: the file became shorter"):
        reader.read(90, 20)
    with pytest.raises(CorruptFile):
        list(reader.segments())


def test_bytes_after_the_last_segment_are_noticed() -> None:
    transport = MemoryTransport()
    file = transport.create("pack")
    writer = PackWriter(file, KINDS)
    writer.append(b"\x05abc")
    length, _ = writer.finish()
    with pytest.raises(CorruptFile, match="segment"):
        list(PackReader(transport.open_read("pack"), length, "pack").segments())
