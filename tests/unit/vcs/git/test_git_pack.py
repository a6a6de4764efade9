"""The bytes of packs and indexes, and the way records become entries."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import struct
import tracemalloc
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.records import delta as frames
from smartserver.records.segment import STORED
from smartserver.vcs.base import WrongContent
from smartserver.vcs.git.objects import BLOB, COMMIT, TAG, TREE, GitObject, MissingObject
from smartserver.vcs.git.pack import (
    BaseNotHere,
    EntryWriter,
    Row,
    Table,
    Texts,
    offset_back,
    write_all,
)

NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}


@given(st.integers(1, 1 << 40))
def test_offsets_are_read_back_as_git_does(offset: int) -> None:
    coded = offset_back(offset)
    n = coded[0] & 127
    for before, byte in itertools.pairwise(coded):
        assert before & 128
        n = (n + 1) << 7 | byte & 127
    assert not coded[-1] & 128
    assert n == offset


def rows_of(table: Table, width: int) -> list[tuple[bytes, int, int]]:
    """(key, check, offset) of each entry, sorted by key."""
    block, count = table.to_bytes(), len(table)
    checks, offsets = array("I"), array("Q")
    checks.frombytes(block[width * count : (width + 4) * count])
    offsets.frombytes(block[(width + 4) * count :])
    return sorted(zip([block[n * width : (n + 1) * width] for n in range(count)], checks, offsets, strict=True))


def test_an_index_finds_wide_offsets() -> None:
    table = Table(20)
    keys = [hashlib.sha1(bytes((n,))).digest() for n in range(40)]
    for n, key in enumerate(keys):
        table.add(key, n, n if n % 2 else (1 << 31) + n * (1 << 33))
    pack_hash = hashlib.sha1(b"pack").digest()
    block = table.index(pack_hash)
    assert block[:8] == b"\377tOc\0\0\0\2"
    assert block[-20:] == hashlib.sha1(block[:-20]).digest()
    assert block[-40:-20] == pack_hash
    fanout = struct.unpack_from(">256I", block, 8)
    assert fanout[-1] == 40
    at = 8 + 1024
    for place, key in enumerate(sorted(keys)):
        n = keys.index(key)
        assert (fanout[key[0] - 1] if key[0] else 0) <= place < fanout[key[0]]
        assert block[at + 20 * place : at + 20 * place + 20] == key
        assert struct.unpack_from(">I", block, at + 800 + 4 * place) == (n,)
        (offset,) = struct.unpack_from(">I", block, at + 960 + 4 * place)
        if offset & 1 << 31:
            (offset,) = struct.unpack_from(">Q", block, at + 1120 + 8 * (offset & ~(1 << 31)))
        assert offset == (n if n % 2 else (1 << 31) + n * (1 << 33))


class Spool:
    """A spool file, and rows for what is put into it."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.out = os.open(path.with_suffix(".out"), os.O_RDWR | os.O_CREAT)
        self.end = 0

    def row(self, kind: int, text: bytes, base: bytes = b"", base_key: bytes = b"") -> Row:
        encoding, frame = frames.compress(text, base)
        at = self.end
        write_all(self.file, frame)
        self.end += len(frame)
        key = hashlib.sha1(b"%s %d\0%s" % (NAMES[kind], len(text), text)).digest()
        return Row(kind, encoding, len(text), at, len(frame), key, base_key if encoding else b"")


def nothing_outside(key: bytes) -> GitObject:
    raise MissingObject(key)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool")
    yield made
    os.close(made.file)
    os.close(made.out)


def entries(writer: EntryWriter, spool: Spool) -> list[tuple[int, bytes]]:
    """Type and inflated bytes of each entry written."""
    writer.flush()
    block = os.pread(spool.out, writer.size, 0)
    found = []
    for _, check, at in sorted(rows_of(writer.table, 20), key=lambda row: row[2]):
        start, kind = at, block[at] >> 4 & 7
        while block[at] & 128:
            at += 1
        at += 1
        if kind == 6:
            while block[at] & 128:
                at += 1
            at += 1
        inflate = zlib.decompressobj()
        found.append((kind, inflate.decompress(block[at:])))
        end = len(block) - len(inflate.unused_data)
        assert zlib.crc32(block[start:end]) == check
    return found


def test_a_delta_only_where_types_are_equal(spool: Spool) -> None:
    text = b"".join([b"line %d of some text\n" % n for n in range(50)])
    blob = spool.row(BLOB, text)
    edited = spool.row(BLOB, text + b"more\n", text, blob.key)
    commit = spool.row(COMMIT, text + b"commit\n", text, blob.key)
    tag = spool.row(TAG, text + b"tag\n", text + b"commit\n", commit.key)
    second = spool.row(COMMIT, text + b"commit 2\n", text + b"commit\n", commit.key)
    other = spool.row(BLOB, bytes(range(256)) * 9, text, blob.key)
    writer = EntryWriter(spool.file, spool.out, 20, nothing_outside, cache=1 << 20, level=1)
    writer.add_all([blob, edited, commit, tag, second, other])
    assert [kind for kind, _ in entries(writer, spool)] == [BLOB, 6, COMMIT, TAG, COMMIT, BLOB]


@pytest.mark.parametrize("cache", [0, 500, 1 << 20])
def test_dropped_texts_are_decoded_again(spool: Spool, cache: int) -> None:
    texts = [b"".join([b"version %d line %d\n" % (v if n == 3 else 0, n) for n in range(30)]) for v in range(30)]
    rows: list[Row] = []
    for n, text in enumerate(texts):
        rows.append(spool.row(BLOB, text, texts[n - 1] if n else b"", rows[-1].key if n else b""))
    again = spool.row(BLOB, texts[2] + b"late\n", texts[2], rows[2].key)
    reader = Texts(spool.file, nothing_outside, cache)
    for row, text in zip([*rows, again], [*texts, texts[2] + b"late\n"], strict=True):
        assert reader.add(row)[1] == text


@pytest.mark.parametrize("stored", [False, True])
def test_a_large_text_is_never_held_twice(spool: Spool, stored: bool) -> None:
    text = random.Random(1).randbytes(16 << 20) if stored else b"a line of text, and another\n" * (1 << 19)
    row = spool.row(BLOB, text)
    assert (row.encoding == STORED) == stored
    small, after = spool.row(BLOB, b"small\n"), spool.row(BLOB, b"small too\n")
    length = len(text)
    del text
    writer = EntryWriter(spool.file, spool.out, 20, nothing_outside, cache=1 << 20, level=1)
    tracemalloc.start()
    try:
        writer.add_all([small, row, after])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The frame of what is stored is the text.
    assert peak < length + row.frame_length * (not stored) + (4 << 20)
    assert [(kind, len(text)) for kind, text in entries(writer, spool)] == [(BLOB, 6), (BLOB, length), (BLOB, 10)]


def test_bases_outside_are_asked_for(spool: Spool) -> None:
    base = b"".join([b"line %d\n" % n for n in range(100)])
    outside = GitObject(b"o" * 20, BLOB, base)
    asked = []

    def read(key: bytes) -> GitObject:
        asked.append(key)
        return outside

    first = spool.row(BLOB, base + b"1\n", base, outside.key)
    second = spool.row(BLOB, base + b"2\n", base, outside.key)
    writer = EntryWriter(spool.file, spool.out, 20, read, cache=1 << 20, level=1)
    writer.add_all([first, second])
    assert asked == [outside.key]
    # The pack stands alone: what rests on something outside it is written whole.
    assert entries(writer, spool) == [(BLOB, base + b"1\n"), (BLOB, base + b"2\n")]


def test_wrong_records_are_named(spool: Spool) -> None:
    writer = EntryWriter(spool.file, spool.out, 20, nothing_outside, cache=1 << 20, level=1)
    row = spool.row(BLOB, b"text of a blob\n" * 10)
    with pytest.raises(WrongContent, match="its content has the id"):
        writer.add(row._replace(key=bytes(20)))
    with pytest.raises(WrongContent, match="its content has the id"):
        writer.add(row._replace(type=TAG))
    with pytest.raises(WrongContent, match=row.key.hex()):
        writer.add(row._replace(length=row.length + 1))


def test_a_base_that_should_be_here_and_is_not_is_no_fault_of_the_server(spool: Spool) -> None:
    text = b"text of a blob\n" * 10
    row = spool.row(BLOB, text + b"more\n", text, b"x" * 20)
    writer = EntryWriter(spool.file, spool.out, 20, nothing_outside, cache=1 << 20, level=1)
    with pytest.raises(BaseNotHere, match=f"object {'78' * 20}, which what came rests on, is missing here: run `git f"):
        writer.add(row)


def test_memory_of_what_was_written(spool: Spool) -> None:
    """A history of a million objects is cloned by processes of a hundred megabytes or two."""
    count = 10_000
    writer = EntryWriter(spool.file, spool.out, 20, nothing_outside, cache=0, level=1)
    tracemalloc.start()
    try:
        for n in range(count):
            writer.add(spool.row(BLOB, b"%d" % n))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count < 250
