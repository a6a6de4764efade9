"""The blocks of the disk specification that show Breezy's texts are what Breezy wrote. `test_bzr_*.py` read those."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.system import system_of
from smartserver.vcs.bzr.pages import read_node

SPEC = Path(__file__).parents[4] / "doc" / "spec" / "disk.md"


def block(title: str) -> bytes:
    """The text a block of the specification shows."""
    (lines,) = re.findall(rf"^```bzr\n# {re.escape(title)}\n(.*?)^```$", SPEC.read_text(encoding="utf-8"), re.M | re.S)
    return str(lines).replace("\u2400", "\0").encode()


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("an inventory", SECOND[1].text),
        ("a leaf of id_to_entry", SECOND[2].text),
        ("a leaf of parent_id_basename_to_file_id", FIRST[3].text),
    ],
)
def test_the_texts_are_breezys(title: str, text: bytes) -> None:
    assert block(title) == text


def test_the_revision_is_breezys() -> None:
    assert block("a revision, cut into lines before its items").replace(b"\n", b"") == SECOND[0].text


def test_a_page_of_pages_is_read() -> None:
    node = read_node(block("a page of pages"))
    assert node == (2, b"", {b"7": SECOND[2].key, b"@": FIRST[2].key, b"G": FIRST[3].key})


@pytest.mark.parametrize(("vcs", "title"), [("bzr 2a", "Records of Breezy"), ("hg sha1", "Records of Mercurial")])
def test_the_kinds_are_those_of_the_table(vcs: str, title: str) -> None:
    section = re.split(r"^##", SPEC.read_text(encoding="utf-8").partition(f"### {title}\n")[2], maxsplit=1, flags=re.M)[
        0
    ]
    rows = re.findall(r"^\| (\d) \| `(\w+)` \| `([\w-]+)` \| (yes|no) \|", section, re.M)
    kinds = enumerate(system_of(vcs).kinds)
    assert rows == [(str(place), kind.name, kind.check, "yes" if kind.base else "no") for place, kind in kinds]
