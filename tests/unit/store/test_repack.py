from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pack_samples import KINDS, Stored, history, stored

from smartserver.errors import CorruptFile
from smartserver.store import repack
from smartserver.store.open_pack import OpenPack, pack_path
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import PackEntry
from smartserver.store.repack import FEW_PACKS, LARGE, MOST_PACKS
from smartserver.store.snapshot import Snapshot


def entries(sizes: Sequence[int]) -> list[PackEntry]:
    return [PackEntry(b"n" * 16, size, b"h" * 16, 1, b"i" * 16, 1, 1) for size in sizes]


def join(sizes: list[int], part: slice | None) -> int:
    """Do what a plan says; gives the bytes written."""
    if part is None:
        return 0
    assert part.stop - part.start > 1
    written = sum(sizes[part])
    sizes[part] = [written]
    return written


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([], 0), ([1], 0), ([1, 1], 1), ([1, LARGE + 1, 1], 0), ([1, 1, LARGE + 1, 1, LARGE + 1, 1, 1, 1], 2)],
)
def test_what_may_be_joined(sizes: list[int], rows: int) -> None:
    assert repack.rows(entries(sizes)) == rows


@pytest.mark.parametrize("base", [[], [60_000_000]])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_thousand_pushes(base: list[int], seed: int) -> None:
    """The number of packs stays small, and a byte is written anew about as often as what was pushed doubles."""
    chance = random.Random(seed)
    sizes = list(base)
    pushed = written = repacks = most = 0
    for _ in range(2000):
        size = int(chance.lognormvariate(7, 1.2)) + 200
        sizes.append(size)
        pushed += size
        most = max(most, len(sizes))
        joined = join(sizes, repack.plan(entries(sizes)))
        written += joined
        repacks += joined > 0
    assert sum(sizes) == sum(base) + pushed
    assert most == MOST_PACKS + 1 < 20
    assert repacks <= 2000 / (MOST_PACKS - FEW_PACKS)
    assert written < 8 * pushed
    assert not base or sizes[0] == base[0]


def test_large_packs_are_left_alone_and_part_the_others() -> None:
    large = LARGE + 1
    sizes = [large] * 40
    assert repack.plan(entries(sizes)) is None
    sizes = [large, *[5] * 4, large, *[7] * MOST_PACKS]
    join(sizes, repack.plan(entries(sizes)))
    assert sizes == [large, *[5] * 4, large, 7 * MOST_PACKS]
    sizes = [large, *[5] * MOST_PACKS, large, *[7] * 4]
    join(sizes, repack.plan(entries(sizes)))
    assert sizes == [large, 5 * MOST_PACKS, large, *[7] * 4]
    assert repack.plan(entries([3, large] * (MOST_PACKS + 1))) is None
    assert repack.plan(entries([LARGE] * (MOST_PACKS + 1))) is not None


def place_of(made: Stored) -> Quarantine:
    if not made.transport.exists("incoming"):
        made.transport.make_directory("incoming")
    return Quarantine(made.transport, b"repack", lambda size: b"n" * size)


def test_damage_never_gets_a_new_trailer() -> None:
    made = stored([3, 3])
    path = pack_path(made.entries[1].name)
    content = bytearray(made.transport.get(path))
    content[len(content) // 2] ^= 1
    made.transport.delete(path)
    made.transport.put(path, (bytes(content),))
    snapshot = Snapshot.open(made.transport, made.state())
    with pytest.raises(CorruptFile, match=f"{path}.*does not have the hash it ends with"):
        repack.run(place_of(made), snapshot.packs, made.state())
    # A pack of the same length that is whole, but not the one the log names.
    made.transport.delete(path)
    file = made.transport.create(path)
    writer = PackWriter(file, KINDS)
    reader = PackReader(made.transport.open_read(pack_path(made.entries[0].name)), made.entries[0].length, "pack")
    other = b"".join(reader.chunks())
    size = made.entries[1].length - writer.length - 16
    writer.append((other * 3)[:size])
    writer.finish()
    place_of(made).discard()
    snapshot = Snapshot.open(made.transport, made.state())
    with pytest.raises(CorruptFile, match=f"{path}.*does not end with the hash the log names"):
        repack.run(place_of(made), snapshot.packs, made.state())


def test_packs_of_other_kinds_are_not_joined() -> None:
    made = stored([3])
    path = pack_path(b"o" * 16)
    file = made.transport.create(path)
    writer = PackWriter(file, KINDS[:2])
    writer.append(history(1)[0].segment())
    length, digest = writer.finish()
    snapshot = Snapshot.open(made.transport, made.state())
    entry = PackEntry(b"o" * 16, length, digest, 0, b"", 1, 1)
    other = OpenPack(made.transport, entry, KINDS[:2], lambda _entry, _index: None)
    other.index = snapshot.packs[0].index
    with pytest.raises(CorruptFile, match="its kinds are not those of the pack before it"):
        repack.run(place_of(made), [*snapshot.packs, other], made.state())


@pytest.mark.parametrize(
    ("sizes", "left"),
    [([], []), ([5], [5]), ([5, 6], [11]), ([1000, 1, 1], [1002]), ([5, 6, LARGE + 1, 7, 8, 9], [11, LARGE + 1, 24])],
)
def test_all_are_joined_when_somebody_asks(sizes: list[int], left: list[int]) -> None:
    while (part := repack.plan(entries(sizes), whole=True)) is not None:
        join(sizes, part)
    assert sizes == left
