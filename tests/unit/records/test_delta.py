"""Frames: what they cost, what is refused before zstd sees it, and both ways to zstd giving the same.

records.hunks, records.alike: differences of texts, and what two texts have in common."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from needs import needs

from smartserver.records import delta, limits
from smartserver.records.alike import common_end, common_start
from smartserver.records.hunks import Hunk, apply_hunks, decode_hunks, encode_hunks, hunk_parts
from smartserver.records.native import PARTS
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS
from smartserver.records.varint import Malformed

WORDS = b"one two three four"


@pytest.mark.parametrize(
    ("hunks", "frame", "text"),
    [
        ([], b"", WORDS),
        ([(0, 3, b"1")], b"\x00\x03\x011", b"1 two three four"),
        ([(4, 7, b"2"), (14, 18, b"")], b"\x04\x03\x012\x07\x04\x00", b"one 2 three "),
        ([(3, 3, b" and"), (18, 18, b"!")], b"\x03\x00\x04 and\x0f\x00\x01!", b"one and two three four!"),
        ([(0, 18, b"")], b"\x00\x12\x00", b""),
    ],
)
def test_a_frame_makes_the_text_of_its_base(hunks: list[Hunk], frame: bytes, text: bytes) -> None:
    assert encode_hunks(hunks) == frame
    assert decode_hunks(frame) == hunks
    assert apply_hunks(hunks, len(text), WORDS) == text


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"\x04", "cut off"),
        (b"\x04\x03\x05abc", "cut off"),
        (b"\x13\x00\x00", "byte 19 of a base of 18"),
        (b"\x04\x0f\x00", "byte 19 of a base of 18"),
        (b"\x00\x01\x00", "17 bytes of text, expected 18"),
        (b"\x80\x00\x00\x00", "shortest form"),
        (bytes(limits.MAX_HUNKS + 2), "1048578 bytes of hunks"),
    ],
)
def test_what_is_refused(frame: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        apply_hunks(decode_hunks(frame), len(WORDS), WORDS)


def test_integers_of_any_length() -> None:
    chance = random.Random(4)
    for _ in range(300):
        at, hunks = 0, []
        for _ in range(chance.randrange(5)):
            start = at + chance.choice((0, 1, 127, 128, 16_383, 16_384, 3_000_000))
            at = start + chance.choice((0, 1, 127, 128, 20_000))
            hunks.append((start, at, bytes(chance.choice((0, 1, 127, 128, 20_000)))))
        assert decode_hunks(encode_hunks(hunks)) == hunks


def outcome(make: Callable[[int], bytes], length: int) -> bytes | None:
    """A text of that length, None where it is refused."""
    try:
        return make(length)
    except Malformed:
        return None


@pytest.mark.parametrize("seed", range(20))
def test_in_parts_they_make_the_same_and_refuse_the_same(seed: int) -> None:
    chance = random.Random(seed)
    base = chance.randbytes(chance.randrange(60))
    ends = sorted(chance.randrange(len(base) + 3) for _ in range(2 * chance.randrange(4)))
    hunks = [
        (start, end, chance.randbytes(chance.randrange(3))) for start, end in zip(ends[::2], ends[1::2], strict=True)
    ]
    size = chance.choice([1, 5, 100])
    for length in range(70):
        cut = [base[at : at + size] for at in range(0, len(base), size)]
        whole = outcome(lambda length: apply_hunks(hunks, length, base), length)
        parts = outcome(lambda length: b"".join(hunk_parts(hunks, length, cut)), length)  # noqa: B023
        assert whole == parts, seed


def test_every_place_of_a_difference_and_every_length() -> None:
    for size in (1, 2, 255, 256, 257, 511, 600):
        text = bytes(range(1, 200)) * 4
        for at in range(size):
            one, other = text[:size], text[:at] + b"\0" + text[at + 1 : size]
            assert common_start(one, other) == at
            assert common_start(b"ab" + one, b"c" + other, 2, 1) == at
            assert common_start(one, other[:at]) == at
            assert common_end(one, other, size) == size - 1 - at
            assert common_end(b"ab" + one, b"c" + other, size) == size - 1 - at
            assert common_end(one, one, at) == at


MAGIC = b"\x28\xb5\x2f\xfd"
BASE_OF_PARTS = b"".join(b"line %d of some\n" % (number * number) for number in range(20_000))


@pytest.fixture(params=[pytest.param("native", marks=needs("native parts")), "python"])
def zstd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways to reach zstd, one after the other."""
    python, native = PARTS["Zstd"]
    maker = native if request.param == "native" else python
    monkeypatch.setattr(delta, "Zstd", maker)
    monkeypatch.setattr(delta, "_threads", type(delta._threads)())
    yield request.param
    if hasattr(delta._threads, "zstd"):
        assert isinstance(delta._threads.zstd, maker)


def prose(size: int, seed: int = 1) -> bytes:
    """Text of about `size` bytes that is no more regular than source code is."""
    chance = random.Random(seed)
    words = [chance.randbytes(chance.randint(1, 4)).hex().encode() for _ in range(3000)]
    lines = [b" ".join(chance.choices(words, k=8)) for _ in range(size // 55)]
    return b"\n".join(lines)


def edited(text: bytes, lines: int, seed: int = 2) -> bytes:
    chance = random.Random(seed)
    rows = text.split(b"\n")
    for n in chance.sample(range(len(rows)), lines):
        rows[n] = b"changed line %d" % n
    return b"\n".join(rows)


def noise(size: int, seed: int = 3) -> bytes:
    return random.Random(seed).randbytes(size)


def header(frame: bytes) -> zstandard.FrameParameters:
    return zstandard.get_frame_parameters(MAGIC + frame)


# ---- what is written


@pytest.mark.usefixtures("zstd")
def test_frame_has_no_more_than_it_needs() -> None:
    base = prose(20_000)
    for text in (edited(base, 5), prose(200_000)):
        encoding, frame = delta.compress(text, base)
        assert encoding == ZSTD
        assert frame[:4] != MAGIC
        told = header(frame)
        assert told.content_size == len(text)
        assert told.dict_id == 0
        assert not told.has_checksum


@pytest.mark.long
@pytest.mark.parametrize(("size", "lines"), [(100_000, 50), (31_000_000, 50)])
def test_fifty_changed_lines_cost_under_a_hundredth(size: int, lines: int) -> None:
    base = prose(size)
    text = edited(base, lines)
    encoding, frame = delta.compress(text, base)
    assert encoding == ZSTD
    assert len(frame) * 100 < len(text)
    assert delta.decompress(encoding, frame, len(text), base) == text


@pytest.mark.usefixtures("zstd")
def test_base_beyond_the_default_window_is_found() -> None:
    # from_level(9) alone never makes a window over 4 MiB.
    base = noise(5 << 20)
    encoding, frame = delta.compress(base[: 1 << 20], base)
    assert encoding == ZSTD
    assert len(frame) < 1000


def test_base_that_is_too_short_or_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = prose(4000)
    alone = delta.compress(text)
    assert delta.compress(text, text[:7]) == alone
    assert not delta.usable_base(text, text[:7])
    monkeypatch.setattr(limits, "MAX_BASED", 2 * len(text) - 1)
    assert not delta.usable_base(text, text)
    assert delta.compress(text, text) == alone
    monkeypatch.setattr(limits, "MAX_BASED", 2 * len(text))
    assert delta.usable_base(text, text)
    assert len(delta.compress(text, text)[1]) < 50  # zstd drops a prefix that lies where the text does.


@pytest.mark.usefixtures("zstd")
def test_incompressible_text_is_stored() -> None:
    for size in (0, 1, 500, 3 << 20):
        text = noise(size)
        assert delta.compress(text) == (STORED, text)
        assert delta.compress(text, prose(2000)) == (STORED, text)


# ---- what is refused

BASE = prose(3000)
TEXT = edited(BASE, 4)
FRAME = delta.compress(TEXT, BASE)[1]


def refused(frame: bytes, length: int, base: bytes, why: str, encoding: int = ZSTD) -> None:
    with pytest.raises(Malformed, match=why):
        delta.decompress(encoding, frame, length, base)


def hand_made(length: int, blocks: bytes) -> bytes:
    """A single-segment frame that claims `length` bytes."""
    return b"\xe0" + length.to_bytes(8, "little") + blocks


def block(kind: int, size: int, last: bool, body: bytes) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + body


@pytest.mark.usefixtures("zstd")
def test_trailing_bytes_and_second_frames() -> None:
    refused(FRAME + b"x", len(TEXT), BASE, "1 bytes after the end")
    refused(FRAME + FRAME, len(TEXT), BASE, "after the end")
    refused(FRAME + MAGIC + FRAME, 2 * len(TEXT), BASE, "expected")
    empty = hand_made(0, block(0, 0, True, b""))
    assert delta.decompress(ZSTD, empty, 0) == b""
    refused(FRAME + empty, len(TEXT), BASE, "after the end")
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    refused(FRAME + skippable, len(TEXT), BASE, "after the end")


@pytest.mark.usefixtures("zstd")
def test_every_cut_is_refused() -> None:
    for end in range(len(FRAME)):
        refused(FRAME[:end], len(TEXT), BASE, "byte")


@pytest.mark.usefixtures("zstd")
def test_bombs() -> None:
    # 2,048 blocks of one repeated byte are 256 MiB in 8 KB: a window of 128 MiB is the most.
    blocks = block(1, 128 << 10, False, b"\0") * 2047 + block(1, 128 << 10, True, b"\0")
    bomb = hand_made(1 << 28, blocks)
    assert len(bomb) < 8_300
    refused(bomb, 100, b"", f"a frame of {1 << 28} bytes of text, expected 100")
    refused(bomb, 1 << 28, b"", "window")
    for most in (limits.MAX_RECORD + 1, 1 << 31):
        refused(hand_made(most, blocks * 8), most, b"", f"expected no more than {limits.MAX_RECORD}")
    small = hand_made(1 << 36, block(1, 100, True, b"\0"))
    assert len(small) < 16
    refused(small, 100, b"", "expected 100")
    refused(small, 1 << 36, b"", "expected no more than")
    # A legal claim, but one block cannot hold it: refused before memory is taken.
    refused(hand_made(1 << 26, block(1, 100, True, b"\0")), 1 << 26, b"", "1 blocks cannot hold")
    # Blocks that hold more than the frame claims.
    refused(hand_made(100, block(1, 101, True, b"\0")), 100, b"", "damaged")
    refused(hand_made(100, block(1, 99, True, b"\0")), 100, b"", "damaged")


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "empty"),
        (b"\x00\x00" + block(0, 0, True, b""), "without its content size"),
        (b"\x40\x89\x00\x00" + block(1, 256, True, b"a"), "a window over"),
        (b"\x24\x03" + block(0, 3, True, b"abc") + b"\0\0\0\0", "options"),
        (b"\x21\x07\x03" + block(0, 3, True, b"abc"), "options"),
        (b"\x28\x03" + block(0, 3, True, b"abc"), "options"),
        (b"\x30\x03" + block(0, 3, True, b"abc"), "options"),
        (b"\x20\x03" + block(3, 3, True, b"abc"), "no known kind"),
        (b"\x20\x03" + block(0, 3, False, b"abc"), "cut off"),
        (b"\x20\x03" + block(0, 4, True, b"abc"), "cut off"),
        (b"\x20\x03" + block(2, 3, True, b"abc"), "damaged"),
    ],
)
@pytest.mark.usefixtures("zstd")
def test_frames_no_writer_makes(frame: bytes, why: str) -> None:
    refused(frame, 256 if frame[:1] == b"\x40" else 3, b"", why)


@pytest.mark.usefixtures("zstd")
def test_the_widest_window_is_taken() -> None:
    frame = b"\x40\x88\x00\x00" + block(1, 256, True, b"a")
    assert delta.decompress(ZSTD, frame, 256) == b"a" * 256


@pytest.mark.usefixtures("zstd")
def test_a_frame_does_not_depend_on_those_before() -> None:
    text = prose(41_000)
    cases = [(level, size, base) for level in (3, 8, 9) for size in (9, 1024, 1025, 16384) for base in (0, 700)]
    # Of one size with their bases: with and without rows.
    cases += [(level, size, 40_000 - size) for level in (5, 8, 9) for size in (20_000, 40_000)]
    make = _alone(text)
    alone = {case: make(*case) for case in cases}
    for level, size, base in [*cases, *reversed(cases)]:
        assert delta.compress(text[:size], text[1 : 1 + base], level)[1] == alone[level, size, base]


def _alone(text: bytes) -> Callable[[int, int, int], bytes]:
    """The frame of a text in a thread that has made nothing yet."""

    def make(level: int, size: int, base: int) -> bytes:
        with ThreadPoolExecutor(1) as fresh:
            return fresh.submit(delta.compress, text[:size], text[1 : 1 + base], level).result()[1]

    return make


@pytest.mark.usefixtures("zstd")
def test_a_failure_leaves_nothing_behind() -> None:
    damaged = bytearray(FRAME)
    damaged[-1] ^= 0x55
    for _ in range(3):
        with pytest.raises(Malformed):
            delta.decompress(ZSTD, bytes(damaged[:-1]), len(TEXT), BASE)
        refused(hand_made(100, block(1, 99, True, b"\0")), 100, BASE, "damaged")
        assert delta.decompress(ZSTD, delta.compress(BASE)[1], len(BASE)) == BASE
        assert delta.decompress(ZSTD, FRAME, len(TEXT), BASE) == TEXT


@pytest.mark.usefixtures("zstd")
def test_stored_frames() -> None:
    assert delta.decompress(STORED, b"abc", 3) == b"abc"
    assert type(delta.decompress(STORED, memoryview(b"abc"), 3)) is bytes
    refused(b"abc", 4, b"", "stored frame of 3 bytes, expected 4", STORED)
    refused(b"abc", 3, b"", "unknown encoding 2", 2)


def test_a_base_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BASED", len(BASE) + len(TEXT) - 1)
    refused(FRAME, len(TEXT), BASE, f"a base of {len(BASE)} bytes")


# ---- threads, and the ways to zstd


@pytest.mark.usefixtures("zstd")
def test_threads_do_not_disturb_one_another() -> None:
    bases = [prose(20_000, seed) for seed in range(8)]
    texts = [edited(base, 5) for base in bases]
    frames = [delta.compress(text, base) for text, base in zip(texts, bases, strict=True)]

    def work(n: int) -> bool:
        n %= 8
        if n % 3 == 0:
            assert delta.compress(texts[n], bases[n]) == frames[n]
        return delta.decompress(*frames[n], len(texts[n]), bases[n]) == texts[n]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(800)))


def test_a_fixed_frame_is_still_read() -> None:
    # Frames are in files for ever; another release of zstd may write others, but must read this one.
    base = b"The quick brown fox jumps over the lazy dog.\n" * 2 + b"end\n"
    text = b"The quick brown fox leaps over the lazy dog.\n" + base
    frame = bytes.fromhex("208b7d0000186c656103003a2c0210067428ad80")
    assert delta.decompress(ZSTD, frame, 139, base) == text


LARGEST = """
import resource
from smartserver.records import delta
from smartserver.records import limits
size = limits.MAX_RECORD
one = lambda last: (128 << 10 << 3 | 1 << 1 | last).to_bytes(3, "little") + b"x"
frame = bytes([0xC0, 17 << 3]) + size.to_bytes(8, "little") + one(0) * (size // (128 << 10) - 1) + one(1)
delta.decompress(*delta.compress(b"a" * 99), 99)
with open("/proc/self/statm") as file:
    taken = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + size * 5 // 4, resource.RLIM_INFINITY))
assert len(delta.decompress(1, frame, size)) == size
"""


@needs("/proc")
def test_the_largest_text_is_in_memory_once() -> None:
    """Eight kilobytes claim it: a server could have a client take twice as much as its own limit."""
    done = subprocess.run([sys.executable, "-c", LARGEST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("size", "encoding"), [(10, HUNKS), (1000, ZSTD_HUNKS)])
def test_hunks_are_a_frame(size: int, encoding: int) -> None:
    base, added = prose(2000), b"the same line\n" * size
    hunks = encode_hunks([(5, 9, added)])
    made, frame = delta.pack_hunks(hunks)
    assert (made, delta.hunks_in(made, memoryview(frame))) == (encoding, hunks)
    text = base[:5] + added + base[9:]
    assert delta.decompress(made, frame, len(text), base) == text
    refused(frame, len(text) - 1, base, f"{len(text)} bytes of text", made)
    refused(frame, len(text), base[:8], "byte 9 of a base of 8", made)


def test_hunks_claim_no_more_than_their_limit() -> None:
    refused(b"\x81\x80\x40", 5, b"base", "1048577 bytes of hunks", ZSTD_HUNKS)
    refused(b"\x05\x00", 5, b"base", "cut off|a frame", ZSTD_HUNKS)


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
@pytest.mark.parametrize("base", [b"", BASE_OF_PARTS])
@pytest.mark.parametrize(
    "text", [b"", b"x", BASE_OF_PARTS + b"more", bytes(1 << 20), random.Random(1).randbytes(1 << 18)]
)
def test_parts_are_the_text(text: bytes, base: bytes, size: int) -> None:
    encoding, frame = delta.compress(text, base)
    of = base if encoding == ZSTD else b""
    assert b"".join(delta.decompress_parts(encoding, pieces(frame, size), len(text), pieces(of, 999))) == text


@pytest.mark.parametrize(
    "damage", [lambda f: f[:-1], lambda f: f + b"x", lambda f: f[:9], lambda _: b"", lambda f: f[1:]]
)
def test_parts_of_what_is_no_frame(damage: Callable[[bytes], bytes]) -> None:
    """A frame that is refused whole is refused in parts."""
    text = BASE_OF_PARTS * 3
    for encoding, frame in (delta.compress(text), (STORED, text)):
        damaged = damage(frame)
        with pytest.raises(Malformed):
            delta.decompress(encoding, damaged, len(text))
        with pytest.raises(Malformed):
            list(delta.decompress_parts(encoding, pieces(damaged, 100), len(text)))


def test_no_part_is_longer_than_a_block() -> None:
    """However little says how much: 64 MiB of zeros."""
    encoding, frame = delta.compress(bytes(64 << 20))
    assert len(frame) < 10_000
    assert max(map(len, delta.decompress_parts(encoding, [frame], 64 << 20))) <= 128 << 10


@pytest.mark.parametrize("stored", [False, True])
def test_a_text_in_parts_becomes_a_frame_with_a_small_window(stored: bool) -> None:
    parts = [
        random.Random(number).randbytes(1 << 20) if stored else b"%d\n" % number * (1 << 18) for number in range(9)
    ]
    text = b"".join(parts)
    given = delta.TextParts(parts)
    encoding, frame = delta.compress_parts(given)
    assert list(given.take()) == []
    assert (encoding == STORED) is stored
    assert delta.decompress(encoding, b"".join(frame), len(text)) == text
    if not stored:
        assert delta.window(b"".join(frame), len(text)) == 1 << limits.PARTS_WINDOW_LOG
