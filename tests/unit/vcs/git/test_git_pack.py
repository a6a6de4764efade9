"""The bytes of packs, indexes and deltas, and the way records become entries."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dulwich.pack import apply_delta
from hypothesis import given
from hypothesis import strategies as st
from traced_memory import traced
from twins import both

from smartserver.records import delta as frames
from smartserver.records.model import BaseTag, Entry
from smartserver.records.native import PARTS
from smartserver.records.segment import encode_segment
from smartserver.records.varint import Malformed
from smartserver.vcs.base import WrongContent
from smartserver.vcs.git.delta import delta
from smartserver.vcs.git.objects import BLOB, COMMIT, METAS, TAG, TREE
from smartserver.vcs.git.pack import BaseNotHere, index, offset_back
from smartserver.vcs.git.system import GIT

KINDS = GIT["git sha1"].kinds
BOTH = both("smartserver.vcs.git.build", "PackBuilder")
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
TYPES = {name: number for number, name in NAMES.items()}


@given(st.integers(1, 1 << 40))
def test_offsets_are_read_back_as_git_does(offset: int) -> None:
    coded = offset_back(offset)
    n = coded[0] & 127
    for before, byte in itertools.pairwise(coded):
        assert before & 128
        n = (n + 1) << 7 | byte & 127
    assert not coded[-1] & 128
    assert n == offset


def test_an_index_finds_wide_offsets() -> None:
    keys = [hashlib.sha1(bytes((n,))).digest() for n in range(40)]
    made = [(key, n, n if n % 2 else (1 << 31) + n * (1 << 33)) for n, key in enumerate(keys)]
    pack_hash = hashlib.sha1(b"pack").digest()
    block = index(sorted(made), pack_hash)
    said = subprocess.run(["git", "show-index"], input=block, capture_output=True, check=True).stdout.decode()
    assert said.splitlines() == [f"{offset} {key.hex()} ({check:08x})" for key, check, offset in sorted(made)]
    assert block[-40:] == pack_hash + hashlib.sha1(block[:-20]).digest()


class Sent:
    """Segments of one revision each, with the records that a test makes."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def record(self, kind: int, text: bytes, base: bytes = b"", base_key: bytes = b"", **wrong: Any) -> bytes:
        """Send an object; its key. `wrong`: what its entry says otherwise."""
        encoding, frame = frames.compress(text, base)
        key = hashlib.sha1(b"%s %d\0%s" % (NAMES[kind], len(text), text)).digest()
        tag, base_key = (BaseTag.FULL_KEY, base_key) if base_key and encoding else (BaseTag.NONE, b"")
        entry = Entry(0, encoding, key, METAS[kind], tag, base_key, len(text), len(frame), b"")._replace(**wrong)
        number = b"%020d" % len(self.blocks)
        self.blocks.append(encode_segment(number, [], [entry], [frame], KINDS))
        return key


def nothing_outside(key: bytes) -> bytes:
    raise BaseNotHere(key)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    made = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(3)]
    yield made
    for file in made:
        os.close(file)


@pytest.fixture
def sent() -> Sent:
    return Sent()


def build(part: Any, files: list[int], sent: Sent, outside: Any = nothing_outside, cache: int = 1 << 20) -> Any:
    builder = part(20, files[0], files[1], outside, cache=cache, level=1)
    try:
        for block in sent.blocks:
            builder.add(block)
        builder.settle()
    except BaseException:
        builder.abandon()
        raise
    return builder


def entries(builder: Any, files: list[int]) -> list[tuple[int, bytes]]:
    """Type and text of each entry of the pack as git reads it and its index, which it verifies; a delta's type is 6."""
    table, digest = builder.finish(files[2])
    pack = os.pread(files[2], 1 << 30, 0)
    assert digest == pack[-20:]
    with tempfile.TemporaryDirectory() as folder:

        def git(*words: str, stdin: bytes = b"") -> bytes:
            return subprocess.run(["git", "-C", folder, *words], input=stdin, capture_output=True, check=True).stdout

        git("init", "-q", "--bare")
        for end, content in (("pack", pack), ("idx", table)):
            Path(folder, f"objects/pack/pack-x.{end}").write_bytes(content)
        rows = [line.split() for line in git("verify-pack", "-v", "objects/pack/pack-x.idx").splitlines()]
        lengths = {row[0]: len(row) for row in rows if len(row) in (5, 7)}  # That of a delta has its base.
        said = git("cat-file", "--batch", stdin=b"\n".join(lengths))
    found = []
    while said:
        head, _, said = said.partition(b"\n")
        key, kind, size = head.split()
        found.append((TYPES[kind] if lengths[key] == 5 else 6, said[: int(size)]))
        said = said[int(size) + 1 :]
    return found


@BOTH
def test_a_delta_only_where_types_are_equal(part: Any, files: list[int], sent: Sent) -> None:
    text = b"".join([b"line %d of some text\n" % n for n in range(50)])
    blob = sent.record(BLOB, text)
    sent.record(BLOB, text + b"more\n", text, blob)
    commit = sent.record(COMMIT, text + b"commit\n", text, blob)
    sent.record(TAG, text + b"tag\n", text + b"commit\n", commit)
    sent.record(COMMIT, text + b"commit 2\n", text + b"commit\n", commit)
    sent.record(BLOB, bytes(range(256)) * 9, text, blob)
    builder = build(part, files, sent)
    assert [kind for kind, _ in entries(builder, files)] == [BLOB, 6, COMMIT, TAG, COMMIT, BLOB]
    assert builder.objects == 6
    assert blob in builder
    assert bytes(20) not in builder


@BOTH
def test_a_base_of_the_repository_that_comes_after_all(part: Any, files: list[int], sent: Sent) -> None:
    """Each of the two texts rests on the other one, as after a change that was reverted."""
    here = b"".join([b"line %d\n" % n for n in range(100)])
    key = hashlib.sha1(b"blob %d\0%s" % (len(here), here)).digest()
    changed = sent.record(BLOB, here + b"changed\n", here, key)
    sent.record(BLOB, here, here + b"changed\n", changed)
    sent.record(BLOB, here + b"changed again\n", here + b"changed\n", changed)
    builder = build(part, files, sent, lambda wanted: here, cache=0)
    assert [text for _, text in entries(builder, files)] == [here + b"changed\n", here, here + b"changed again\n"]
    builder.abandon()
    assert key in builder


def test_a_large_text_is_never_held_twice(files: list[int], sent: Sent) -> None:
    """In Python, whose memory is counted."""
    text = b"a line of text, and another\n" * (1 << 19)
    sent.record(BLOB, text)
    length = len(text)
    del text
    with traced() as memory:
        build(PARTS["PackBuilder"][0], files, sent)
    assert memory.peak < length + (4 << 20)


@BOTH
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"meta": METAS[TAG]}, "its content has the id"),
        ({"length": 151}, "malformed at byte 0: a frame of 150 bytes of text, expected 151"),
    ],
)
def test_wrong_records_are_named(part: Any, files: list[int], sent: Sent, wrong: dict[str, Any], why: str) -> None:
    sent.record(BLOB, b"before\n")
    sent.record(BLOB, b"text of a blob\n" * 10, **wrong)
    sent.record(BLOB, b"after\n")
    with pytest.raises(WrongContent, match=why):
        build(part, files, sent)


@BOTH
def test_what_is_no_segment_is_refused(part: Any, files: list[int], sent: Sent) -> None:
    sent.record(BLOB, b"text\n")
    sent.blocks.append(sent.blocks[0][:-1])
    with pytest.raises(Malformed, match="bytes of a segment of"):
        build(part, files, sent)


def apply(base: bytes, changes: bytes) -> bytes:
    """Apply a delta as another implementation of git does."""
    return b"".join(apply_delta(base, changes))


lines = st.lists(st.sampled_from([b"a long enough line %d\n" % n for n in range(12)] + [b"x\n", b"\n", b"no end"]))
texts = lines.map(b"".join) | st.binary(max_size=600)


@given(texts, st.data())
def test_an_edited_text(base: bytes, data: st.DataObject) -> None:
    text = base
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, len(text)))
        text = text[:at] + data.draw(texts) + text[until:]
    assert apply(base, delta(base, text)) == text


@pytest.mark.parametrize("length", [0, 1, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFE, 0x20001, 300_000])
def test_copies_longer_than_one_instruction(length: int) -> None:
    rng = random.Random(length)
    shared = rng.randbytes(length)
    base = rng.randbytes(70_000) + shared + b"tail"
    text = base[:5] + b"new" * 40 + shared + b"tail"
    assert apply(base, delta(base, text)) == text
    assert len(delta(base, base)) < 60


def test_a_small_edit_costs_little() -> None:
    old = [b"line %d of a file with some words in it\n" % n for n in range(3000)]
    new = list(old)
    for at in range(100, 3000, 300):
        new[at] = b"edited\n"
        new.insert(at + 50, b"inserted\n")
    moved = old[1000:1100]
    changes = delta(b"".join(old), b"".join(new[:2000] + moved + new[2000:]))
    assert apply(b"".join(old), changes) == b"".join(new[:2000] + moved + new[2000:])
    assert len(changes) < 1000


def test_a_large_file_in_another_order_ends_soon() -> None:
    rows = [b"row number %d of a table\n" % n for n in range(60_000)]
    base = b"".join(rows)
    random.Random(5).shuffle(rows)
    text = b"".join(rows)
    assert apply(base, delta(base, text)) == text
