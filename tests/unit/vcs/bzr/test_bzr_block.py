"""vcs.bzr.block: what Breezy reads of blocks made here, compiled or not, is what was put there."""

import hashlib
import importlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import both

from smartserver.vcs.bzr import block as brz_block
from smartserver.vcs.bzr import compat as brz_compat
from smartserver.vcs.bzr.block import Block, BlockText, TextRange, fill

pytestmark = both("smartserver.vcs.bzr.block", "Block", indirect=True)

PLAIN = importlib.import_module("._groupcompress_py", brz_compat.groupcompress.__package__)


@pytest.fixture(autouse=True)
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Block]:
    """The form of `Block` that `fill` uses."""
    monkeypatch.setattr(brz_block, "Block", request.param)
    form: type[Block] = request.param
    return form


def numbered(*numbers: int) -> bytes:
    return b"".join(hashlib.sha1(b"%d" % number).hexdigest().encode() + b"\n" for number in numbers)


def as_read(block: bytes, places: list[TextRange]) -> list[bytes]:
    """The texts of a block, as both of Breezy's decoders have them."""
    made = brz_compat.groupcompress.GroupCompressBlock.from_bytes(block)
    found = [b"".join(made.extract(place.key, place.begin, place.end)) for place in places]
    content: bytes = zlib.decompress(block.split(b"\n", 3)[3])
    assert len(content) == made._content_length
    for place, text in zip(places, found, strict=True):
        assert read_plainly(content, place) == text
    assert sum(each[1] for each in made._dump()) <= len(content)
    return found


def read_plainly(content: bytes, place: TextRange) -> bytes:
    if place.begin == place.end:
        return b""
    length, of_length = PLAIN.decode_base128_int(content[place.begin + 1 : place.end])
    at = place.begin + 1 + of_length
    assert at + length == place.end
    if content[place.begin : place.begin + 1] == b"f":
        return content[at : place.end]
    text: bytes = PLAIN.apply_delta_to_source(content, at, place.end)
    return text


def filled(texts: list[BlockText]) -> list[tuple[bytes, list[TextRange]]]:
    found: list[tuple[bytes, list[TextRange]]] = []
    fill(texts, lambda block, places: found.append((block, places)))
    return found


def is_whole(block: bytes, place: TextRange) -> bool:
    return zlib.decompress(block.split(b"\n", 3)[3])[place.begin :].startswith(b"f")


@st.composite
def edited(draw: st.DrawFn) -> list[BlockText]:
    """Texts, most of them made of an earlier one by edits: cut there, moved there, written there."""
    texts: list[BlockText] = []
    piece = st.one_of(st.binary(max_size=40), st.integers(0, 20).map(lambda number: numbered(*range(number))))
    for number in range(draw(st.integers(1, 12))):
        name = b"file\0r%d" % number
        before = draw(st.sampled_from([None, *texts]))
        text = b"".join(draw(st.lists(piece, max_size=4))) if before is None else before.text
        for _ in range(draw(st.integers(0, 3))):
            at, size = draw(st.integers(0, len(text))), draw(st.integers(0, 200))
            to = draw(st.integers(0, len(text)))
            moved = text[at : at + size] if draw(st.booleans()) else b""
            text = text[:at] + draw(piece) + text[at + size :]
            text = text[:to] + moved + text[to:]
        if before is None:
            texts.append(BlockText(name, (), b"", text))
        else:
            texts.append(BlockText(name, (), b"", text, before.key, before.text))
    return texts


@pytest.mark.parametrize("compiled", [True, False])
@given(texts=edited(), whole_from=st.sampled_from([1, 3]), worth=st.sampled_from([16, 64]))
def test_what_was_put_there_comes_back(compiled: bool, texts: list[BlockText], whole_from: int, worth: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brz_block, "WHOLE_FROM", whole_from)
        patch.setattr(brz_block, "_WORTH", worth)
        if not compiled:
            patch.setattr(brz_block, "differences", None)
        ((block, places),) = filled(texts)
    assert [place.key for place in places] == [text.key for text in texts]
    assert as_read(block, places) == [text.text for text in texts]


def test_a_change_costs_what_it_says_and_no_more() -> None:
    """Each of many versions is one line longer than the one before it, in its middle."""
    texts = [BlockText(b"file\0r0", (), b"", numbered(*range(600)))]
    for number in range(1, 100):
        last = texts[-1]
        text = last.text[: 41 * 5 * number] + b"the line of version %d\n" % number + last.text[41 * 5 * number :]
        texts.append(BlockText(b"file\0r%d" % number, (), b"", text, last.key, last.text))
    ((block, places),) = filled(texts)
    assert as_read(block, places) == [text.text for text in texts]
    assert [is_whole(block, place) for place in places] == [True] + [False] * 99
    assert [place.end - place.begin for place in places[1:]] == sorted(place.end - place.begin for place in places[1:])
    assert places[-1].end - places[-1].begin < 100 * 2 * 6 + 64


def test_two_changes_of_a_text_are_found_apart() -> None:
    old = numbered(*range(300))
    new = numbered(*range(10)) + b"one\n" + numbered(*range(11, 290)) + b"two\n" + numbered(*range(291, 300))
    ((block, places),) = filled([BlockText(b"f\0a", (), b"", old), BlockText(b"f\0b", (), b"", new, b"f\0a", old)])
    assert as_read(block, places) == [old, new]
    assert places[1].end - places[1].begin < 64


def test_a_text_that_has_changed_by_a_third_lies_whole() -> None:
    old = numbered(*range(300))
    slightly = numbered(*range(220)) + numbered(*range(1000, 1080))
    much = numbered(*range(190)) + numbered(*range(2000, 2110))
    rests = [BlockText(b"f\0b", (), b"", slightly, b"f\0a", old), BlockText(b"f\0c", (), b"", much, b"f\0a", old)]
    ((block, places),) = filled([BlockText(b"f\0a", (), b"", old), *rests])
    assert as_read(block, places) == [old, slightly, much]
    assert [is_whole(block, place) for place in places] == [True, False, True]


def test_a_base_that_lies_elsewhere_is_none() -> None:
    text = numbered(*range(30))
    ((block, places),) = filled([BlockText(b"f\0b", (), b"", text, b"f\0a", text)])
    assert is_whole(block, places[0])
    assert as_read(block, places) == [text]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 200_000])
def test_pieces_longer_than_one_instruction_copies(size: int) -> None:
    old = (numbered(*range(5_000)))[:size]
    new = b"ahead\n" + old + b"behind\n"
    last = new[:70_000] + b"between\n" + new[70_000:]
    texts = [
        BlockText(b"f\0a", (), b"", old),
        BlockText(b"f\0b", (), b"", new, b"f\0a", old),
        BlockText(b"f\0c", (), b"", last, b"f\0b", new),
    ]
    ((block, places),) = filled(texts)
    assert as_read(block, places) == [old, new, last]
    assert places[-1].end - places[1].begin < 200


def test_what_lies_too_far_to_be_copied_from(part: type[Block]) -> None:
    block = part()
    large = bytes(16 << 20)
    texts = [large, numbered(*range(20)), numbered(*range(21))]
    places = [
        TextRange(b"a", None, b"", *block.add(b"a", texts[0])),
        TextRange(b"b", None, b"", *block.add(b"b", texts[1])),
        TextRange(b"c", None, b"", *block.add(b"c", texts[2], b"b", texts[1])),
    ]
    assert as_read(block.compressed(), places) == texts
    assert is_whole(block.compressed(), places[2])


def test_blocks_end_where_breezys_do() -> None:
    def text(file: int, number: int, size: int) -> BlockText:
        return BlockText(b"f%d\0r%d" % (file, number), (), b"", b"%d\n" % number + bytes(size))

    of_one = filled([text(1, number, 3 << 20) for number in range(3)])
    assert [len(places) for _, places in of_one] == [2, 1]
    of_many = filled([text(number, number, 3 << 20) for number in range(3)])
    assert [len(places) for _, places in of_many] == [1, 1, 1]


def test_nothing_makes_no_block() -> None:
    assert filled([]) == []


def test_an_empty_text_takes_no_place() -> None:
    ((block, places),) = filled([BlockText(b"f\0a", (), b"", b""), BlockText(b"f\0b", (), b"", b"x", b"f\0a", b"")])
    assert [(place.begin, place.end) for place in places] == [(0, 0), (0, 3)]
    assert as_read(block, places) == [b"", b"x"]
