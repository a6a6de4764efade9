"""The hex blocks of the disk specification that show format, root, tables and log are the bytes this release writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from root_examples import BLOCKS, HEADS, ROOT

from smartserver.store.document import decode_root, decode_value
from smartserver.store.format import Discipline, Format, parse_format

SPEC = Path(__file__).parents[3] / "doc" / "spec"


def blocks() -> dict[str, bytes]:
    """Every block of the texts by its title: its first line is `# title`, what follows a `#` is a remark."""
    found: dict[str, bytes] = {}
    for path in sorted(SPEC.glob("disk*.md")):
        for block in re.findall(r"^```hex\n(.*?)^```$", path.read_text(), re.M | re.S):
            lines = block.splitlines()
            found[lines[0].removeprefix("# ")] = bytes.fromhex("".join(line.partition("#")[0] for line in lines))
    return found


@pytest.mark.parametrize("title", BLOCKS)
def test_a_block_is_what_is_written(title: str) -> None:
    assert blocks()[title] == BLOCKS[title]


def test_the_blocks_are_read_back() -> None:
    found = blocks()
    assert parse_format(found["a format file"]) == Format(Discipline.FILE)
    assert decode_root(found["a root file"]) == ROOT
    assert decode_value(found["the value of a ref with two heads"]) == HEADS
