"""The blocks of the disk specification that show Breezy's texts are what Breezy wrote, and are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.system import system_of
from smartserver.vcs.bzr.pages import read_leaf, read_node
from smartserver.vcs.bzr.revision import read_inventory, read_revision

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
    text = block("a revision, cut into lines before its items").replace(b"\n", b"")
    assert text == SECOND[0].text
    assert read_revision(text).parents == (b"joe@example.org-1", b"ghost@example.org-1")


def test_the_pages_are_read() -> None:
    assert read_inventory(block("an inventory")).id_to_entry == SECOND[2].key
    assert len(read_leaf(block("a leaf of id_to_entry")).items) == 5
    assert len(read_leaf(block("a leaf of parent_id_basename_to_file_id")).items) == 5
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
