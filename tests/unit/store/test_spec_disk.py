"""The hex blocks of the disk specification that show a pack and its index are read, and are what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import locate

from smartserver.records.model import Kind, Parent, Record
from smartserver.records.segment import decode_segment
from smartserver.store import index as index_module
from smartserver.store import index_build, repack
from smartserver.store import pack as pack_module
from smartserver.store.index import Index, Row
from smartserver.store.index_build import rebuild
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.pack import PackReader, PackWriter
from smartserver.store.record import PackEntry, Root
from smartserver.store.snapshot import Snapshot
from transports.memory import MemoryTransport

SPEC = Path(__file__).parents[3] / "doc" / "spec"
KINDS = (Kind("text", "blake2b-128", True),)
PACK = "a pack with two revisions"
INDEX = "the index of the pack with two revisions"
NAME = bytes(range(16))


def text() -> str:
    """The whole specification."""
    return (SPEC / "disk.md").read_text()


def blocks() -> dict[str, bytes]:
    """Every block by its title: its first line is `# title`, what follows a `#` is a remark."""
    found: dict[str, bytes] = {}
    for block in re.findall(r"^```hex\n(.*?)^```$", text(), re.M | re.S):
        lines = block.splitlines()
        title = lines[0].removeprefix("# ")
        assert title not in found, f"two blocks are called {title!r}"
        found[title] = bytes.fromhex("".join(line.partition("#")[0] for line in lines))
    return found


def reader() -> PackReader:
    transport = MemoryTransport()
    transport.put("pack", (blocks()[PACK],))
    return PackReader(transport.open_read("pack"), len(blocks()[PACK]), "pack")


def no_base(_kind: int, _key: bytes) -> Row | None:
    return None


def test_every_block_of_the_text_has_a_test() -> None:
    named = "".join(path.read_text() for path in (SPEC.parents[1] / "tests").rglob("*.py"))
    alone = [title for title in blocks() if f'"{title}"' not in named]
    assert not alone


def test_the_pack_is_read_and_written() -> None:
    pack = reader()
    assert pack.kinds == KINDS
    segments = dict(pack.segments())
    decoded = [decode_segment(segment, 0, KINDS) for segment in segments.values()]
    assert list(segments) == [31, 91]
    assert [segment.parents for segment in decoded] == [(Parent(b"r0"),), (Parent(b"r1"), Parent(b"gh", True))]
    assert pack.trailer() == blocks()[PACK][-16:]
    transport = MemoryTransport()
    writer = PackWriter(transport.create("again"), KINDS)
    for segment in segments.values():
        writer.append(segment)
    writer.finish()
    assert transport.get("again") == blocks()[PACK]


def test_the_index_is_that_of_the_pack() -> None:
    assert rebuild(reader(), no_base) == blocks()[INDEX]
    index = Index.of(blocks()[INDEX], "index")
    assert index.outside == (b"r0",)
    assert (index.records, index.segments) == (2, 2)


def test_the_records_are_read_through_the_index() -> None:
    pack, index = blocks()[PACK], blocks()[INDEX]
    entry = PackEntry(NAME, len(pack), pack[-16:], len(index), index[-16:], 2, 2)
    # What the outside parent lies in: a pack with the revision r0.
    transport = MemoryTransport()
    transport.make_directory("packs")
    writer = PackWriter(transport.create(pack_path(b"f" * 16)), KINDS)
    writer.append(b"\x05\x02r0\x00\x00")
    length, digest = writer.finish()
    first = rebuild(PackReader(transport.open_read(pack_path(b"f" * 16)), length, "pack"), no_base)
    transport.put(index_path(b"f" * 16), (first,))
    transport.put(pack_path(NAME), (pack,))
    transport.put(index_path(NAME), (index,))
    packs = (PackEntry(b"f" * 16, length, digest, len(first), first[-16:], 1, 0), entry)
    snapshot = Snapshot.open(transport, Root(incarnation=bytes(16), version=1, vcs="v", kinds=KINDS, packs=packs))
    texts = [b"alpha\nbravo\ncharlie\ndelta\n", b"alpha\nbravo\ncharlie\ndelta\necho\n"]
    for number, expected in enumerate(texts, 1):
        (location,) = locate(snapshot, 0, b"k%d" % number)
        assert snapshot.record(location) == Record(0, b"k%d" % number, b"", expected)
        assert location.ordinal == number
    assert [snapshot.graph.parents(ordinal) for ordinal in range(3)] == [(), (0,), (1,)]
    assert snapshot.packs[1].rebuilt is None


def table_after(heading: str, start: str) -> list[list[str]]:
    """The cells of the table that begins with the line `start` below a heading."""
    lines = text().split(f"## {heading}\n", 1)[1].split(start, 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_columns_are_listed_in_the_order_they_lie() -> None:
    rows = table_after("Indexes", "| column | items | item | |")
    bits, records, segments, parents, external, outside = 2, 40, 50, 60, 70, 80
    names = {"R": records, "S": segments, "P": parents, "B": external, "O": outside, "2^f": 1 << bits}
    widths = {"u8": 1, "u32": 4, "u64": 8, "20 bytes": 20, "41 bytes": 41}
    listed = [
        (sum(names[part] if part in names else int(part) for part in items.split(" + ")), widths[item])
        for _, items, item, _ in rows
    ]
    counts = index_module._counts(bits, records, segments, parents, external, outside)
    assert listed == [(count, part[1]) for count, part in zip(counts, index_module._COLUMNS, strict=True)]
    row = [cells[0] for cells in table_after("Indexes", "| bytes of a row | |")]
    assert [{"Q": "u64", "I": "u32", "B": "u8"}[form] for form in index_module.ROW.format[1:]] == row
    assert [row[0] for row in table_after("Indexes", "| table | |")] == ["ids", "external bases", "outside parents"]


@pytest.mark.parametrize(
    "said",
    [
        f"magic `{pack_module.MAGIC.decode()}`",
        f"magic `{index_module.MAGIC.decode()}`",
        f"joins when there are more\nthan {repack.MOST_PACKS} others",
        f"no more\nthan {repack.FEW_PACKS} are left",
        f"never more than {repack.MOST_PACKS + 1}\npacks",
        f"leave those of more than {repack.LARGE >> 30} GiB alone",
        f"{index_module.NO_BASE:#X} for none".replace("0X", "0x"),
        f"earlier pack {index_module.EXTERNAL:#x} + an entry of the external bases",
        f"earlier pack {index_module.OUTSIDE:#x} + an entry of the outside parents",
        "at most 2^31 - 2 records",
    ],
)
def test_numbers_in_the_text_are_those_of_the_source(said: str) -> None:
    assert said in text()
    assert index_build.MAX_ROWS == (1 << 31) - 2
