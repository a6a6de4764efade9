"""client.dump_file: the bytes of a dump, as doc/spec/dump.md has them."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.client import dump_file
from smartserver.client.body import SourceFailed
from smartserver.client.dump_file import END, HEADER, MAGIC, MAP, REVISIONS, BadDump, DumpHeader, DumpReader, write_dump
from smartserver.errors import LimitExceeded
from smartserver.records.model import Kind, Tip
from smartserver.records.system import system_of
from smartserver.vcs.hg.system import HG
from smartserver.verbs.map_update import MapKind
from smartserver.wire.errors import RemoteProtocolError

SPEC = Path(__file__).parents[3] / "doc" / "spec" / "dump.md"
MAIN = b"refs/heads/main"
HEAD = DumpHeader(
    "git sha1",
    [Kind("object", "git-sha1", True)],
    {"HEAD": MAIN},
    {MAIN: (Tip(bytes(range(0x20, 0x34))),)},
    {},
    [bytes(range(0x40, 0x54))],
    1,
    6,
)
MARKERS = [("obsolete", {b"a": b"1", b"b": b"2"}), ("obsolete", {b"c": b"3"})]
OF_HG = msgspec.structs.replace(HEAD, vcs=HG, kinds=list(system_of(HG).kinds), maps={"x": (MapKind.IDS, {b"k": b"v"})})


def dumped(header: DumpHeader = HEAD, body: Iterable[bytes] = (b"seg", b"men"), maps: Any = ()) -> bytes:
    return b"".join(write_dump(header, body, maps))


def reader(content: bytes) -> DumpReader:
    return DumpReader(io.BytesIO(content), "x.dump")


def read(content: bytes) -> tuple[DumpHeader, bytes, dict[str, dict[bytes, bytes]]]:
    made = reader(content)
    return made.header, b"".join(made), made.untold


def blocks(*given: tuple[bytes, bytes]) -> bytes:
    """A dump of these blocks, each with its hash."""
    made = MAGIC
    for kind, content in given:
        made += kind + len(content).to_bytes(4, "little") + content
        made += hashlib.blake2b(made, digest_size=32).digest()
    return made


def of_hg(*maps: bytes) -> bytes:
    """A dump with these blocks of maps."""
    return blocks(encoded(OF_HG), (REVISIONS, b"segmen"), *((MAP, each) for each in maps), (END, b""))


def page(*keys: bytes, head: bytes = b"") -> bytes:
    """A block of the map of markers. `head`: of its entries, in place of the shortest."""
    pairs = b"".join(b"\xc4%c%b\xc4\1v" % (len(key), key) for key in keys)
    return b"\x92\xa8obsolete" + (head or bytes([0x80 + len(keys)])) + pairs


def encoded(header: object) -> tuple[bytes, bytes]:
    return HEADER, msgspec.msgpack.encode(header)


def test_the_example_of_the_specification() -> None:
    (block,) = re.findall(r"^```hex\n(.*?)^```$", SPEC.read_text(), re.M | re.S)
    example = bytes.fromhex("".join(line.partition("#")[0] for line in block.splitlines()))
    assert dumped() == example
    assert read(example) == (HEAD, b"segmen", {})


def test_the_numbers_of_the_specification() -> None:
    text = SPEC.read_text()
    assert f"{dump_file.MAX_BLOCK:,} before it reads" in text
    assert f"{dump_file.PIECE:,} bytes into each block" in text
    for name in DumpHeader.__struct_fields__:
        assert f"| `{name}` |" in text


IDS = st.binary(min_size=1, max_size=40)
TIPS = st.lists(st.builds(Tip, IDS, st.binary(max_size=9), st.booleans()), min_size=1, max_size=3)
ENTRIES = st.dictionaries(IDS, st.binary(max_size=20), max_size=4)
HEADERS = st.builds(
    DumpHeader,
    st.just(HG),
    st.just(list(system_of(HG).kinds)),
    st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=3),
    st.dictionaries(IDS, TIPS.map(tuple)),
    st.dictionaries(st.text(max_size=8), st.tuples(st.sampled_from(MapKind), ENTRIES), max_size=3),
    st.lists(IDS, max_size=4),
    st.integers(0, 2**32 - 1),
    st.just(0),
)


MANY = st.dictionaries(IDS, st.binary(max_size=20), max_size=20)


@given(HEADERS, st.lists(st.binary(max_size=200)), MANY, st.integers(1, 20), st.integers(1, 90))
def test_what_is_written_is_read(
    header: DumpHeader, body: list[bytes], found: dict[bytes, bytes], page: int, piece: int
) -> None:
    every = dict(sorted(found.items()))
    pages = [dict(list(every.items())[at : at + page]) for at in range(0, len(every), page)]
    whole = b"".join(body)
    header = msgspec.structs.replace(header, size=len(whole))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dump_file, "PIECE", piece)
        written = dumped(header, body, [("obsolete", page) for page in pages])
        # Where the body is cut does not show.
        assert written == dumped(header, [whole], [("obsolete", page) for page in pages])
    assert read(written) == (header, whole, {"obsolete": every})


def test_each_flipped_byte_and_each_missing_end_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_file, "PIECE", 4)
    whole = dumped(OF_HG, maps=MARKERS)
    assert read(whole)[1] == b"segmen"
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x41
        with pytest.raises(BadDump, match=r"^x\.dump is ") as wrong:
            read(bytes(flipped))
        found = re.search(r"damaged at byte (\d+): ", str(wrong.value))
        if at < len(MAGIC):
            assert "is no dump of smartserver" in str(wrong.value)
        else:
            # The block that it lies in is named, or the end that a wrong length leads to.
            assert found is not None
            assert int(found[1]) <= at or int(found[1]) == len(whole)
        with pytest.raises(BadDump, match=rf"^x\.dump is damaged at byte {at}: it ends here"):
            read(whole[:at])
    with pytest.raises(BadDump, match=rf"at byte {len(whole)}: there is more after the end"):
        read(whole + b"\0")


def test_nothing_is_given_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_file, "PIECE", 4)
    whole = bytearray(dumped())
    whole[whole.index(b"segm")] ^= 1
    with pytest.raises(BadDump):
        next(iter(reader(bytes(whole))))


@pytest.mark.parametrize(("content", "why"), [
    (b"", "at byte 0: it ends here, before its last block"),
    (b"# v2 git bundle\nabcdefgh", "is no dump of smartserver, or one of another version"),
    (blocks((REVISIONS, b"x")), "a block of type b'R' instead of the header"),
    (blocks((HEADER, b"\xc1")), "at byte 19: a block that cannot be read"),
    (blocks((HEADER, b"\x91" * 5000)), "at byte 19: a block that cannot be read"),
    (blocks(encoded({**msgspec.structs.asdict(HEAD), "more": 1})), "unknown field `more`"),
    (blocks(encoded(msgspec.structs.replace(HEAD, refs={MAIN: ()}))), "length >= 1"),
    (blocks(encoded(msgspec.structs.replace(HEAD, rests_on=[b"x"] * 257))), "length <= 256"),
    (blocks(encoded(msgspec.structs.replace(HEAD, size=-1))), ">= 0"),
    (blocks(encoded(msgspec.structs.replace(HEAD, segments=1 << 32))), "<= 4294967295"),
    (blocks(encoded(HEAD), (END, b"")), "6 bytes of revisions are missing"),
    (blocks(encoded(HEAD), (REVISIONS, b"segment"), (END, b"")), "1 bytes of revisions more than the header says"),
    (blocks(encoded(HEAD), (REVISIONS, b"segmen"), (END, b"x")), "the last block is not empty"),
    (blocks(encoded(HEAD), (b"X", b"")), "a block of type b'X' after one of type b'H'"),
    (blocks(encoded(HEAD), encoded(HEAD)), "a block of type b'H' after one of type b'H'"),
    (blocks(encoded(OF_HG), (REVISIONS, b"segmen"), (MAP, msgspec.msgpack.encode(MARKERS[0])), (REVISIONS, b"")),
     "a block of type b'R' after one of type b'M'"),
    (blocks(encoded(OF_HG), (REVISIONS, b"segmen"), (MAP, b"\x80")), "a block that cannot be read"),
    (blocks(encoded(HEAD), (REVISIONS, b"segmen"), (MAP, msgspec.msgpack.encode(MARKERS[0])), (END, b"")),
     "the map 'obsolete' is not one that comes last"),
    (blocks((HEADER, msgspec.msgpack.encode(HEAD).replace(b"git sha1", b"\xffit sha1"))),
     "at byte 19: a block that cannot be read: 'utf-8' codec can't decode byte 0xff"),
    (of_hg(page(b"a", b"b", b"b")),
     f"at byte {len(of_hg()) - 37}: the keys of the map 'obsolete' are not in ascending order"),
    (of_hg(page(b"b", b"a")), "in ascending order"),
    (of_hg(page(b"a", b"a", head=b"\xde\0\2")), "in ascending order"),
    (of_hg(page(b"a", b"a", head=b"\xdf\0\0\0\2")), "in ascending order"),
    (of_hg(page(b"a", b"b"), page(b"c", b"d"), page(b"d")), "in ascending order"),
    (of_hg(page(b"a", b"b"), page(), page(b"a")), "in ascending order"),
    (of_hg(b"\x92\xa8obsolete\xc0"), "a block that cannot be read"),
    (MAGIC + HEADER + b"\xff\xff\xff\xff", "at byte 19: a block of 4294967295 bytes, expected no more than 67108864"),
])  # fmt: skip
def test_what_is_not_in_the_grammar_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BadDump, match=re.escape(why)):
        read(content)


@pytest.mark.parametrize("head", [b"", b"\xde\0\2", b"\xdf\0\0\0\2"])
def test_a_map_may_be_encoded_in_any_way(head: bytes) -> None:
    assert read(of_hg(page(b"a", b"b", head=head), page(), page(b"c")))[2] == {
        "obsolete": dict.fromkeys([b"a", b"b", b"c"], b"v")
    }


def test_a_system_that_is_not_known_is_of_the_dump() -> None:
    with pytest.raises(SourceFailed, match=r"the version-control system 'cvs'"):
        reader(dumped(msgspec.structs.replace(HEAD, vcs="cvs")))


def test_a_body_that_is_not_as_long_as_was_said() -> None:
    for body in (b"segme", b"segment"):
        with pytest.raises(RemoteProtocolError, match=f"^expected 6 bytes of revisions, got {len(body)}$"):
            dumped(body=[body])


def test_a_header_that_nobody_could_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_file, "MAX_BLOCK", 100)
    with pytest.raises(LimitExceeded, match=r"^bytes of refs and maps in a dump: 191, expected no more than 100$"):
        dumped()


class Pipe(io.RawIOBase):
    """It gives a few bytes at a time, and only once."""

    def __init__(self, content: bytes, note: Callable[[int], None] = lambda size: None) -> None:
        super().__init__()
        self._inner = io.BytesIO(content)
        self._note = note

    def read(self, size: int = -1, /) -> bytes:
        self._note(size)
        return self._inner.read(min(size, 7))


def test_a_file_is_read_again_and_a_pipe_is_not() -> None:
    made = reader(dumped(OF_HG, maps=MARKERS))
    assert next(iter(made)) == b"segmen"
    made.check()
    assert [b"".join(made), b"".join(made)] == [b"segmen"] * 2
    assert made.untold == {"obsolete": {b"a": b"1", b"b": b"2", b"c": b"3"}}
    piped = DumpReader(Pipe(dumped()), "standard input")  # type: ignore[arg-type]
    assert b"".join(piped) == b"segmen"
    with pytest.raises(
        BadDump,
        match=r"^the upload had to begin again, and standard input cannot be read a second time: load from a file$",
    ):
        piped.check()


def test_no_more_is_read_at_once_than_a_length_is_worth() -> None:
    """A length of 60 MB allocates what comes, and no 60 MB."""
    sizes: list[int] = []
    with pytest.raises(BadDump, match="it ends here"):
        DumpReader(Pipe(MAGIC + HEADER + (60 << 20).to_bytes(4, "little") + b"x" * 100, sizes.append), "x")  # type: ignore[arg-type]
    assert max(sizes) == 1 << 20
