"""cli.exporting: trees as files, and nothing outside their folder, whatever comes."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from smartserver.cli.errors import CommandError
from smartserver.cli.exporting import write_tree
from smartserver.records.browse import PLAIN, ContentStream, ListedNode, NodeType, checked_items, encode_item
from smartserver.records.varint import Malformed

FOLDER, FILE, RUN, LINK, SUBMODULE = NodeType

Item = tuple[bytes, NodeType, bytes]

TREE: Sequence[Item] = [
    (b"", FOLDER, b""),
    (b"a", FOLDER, b""),
    (b"a/b", FOLDER, b""),
    (b"a/b/file", FILE, b"deep\n"),
    (b"a/c", LINK, b"b/file"),
    (b"empty", FOLDER, b""),
    (b"run", RUN, b"#!\n"),
    (b"sub", SUBMODULE, b"11" * 20),
    (b"\xe4 b", FILE, bytes(300_000)),
]


def stream(items: Sequence[Item], size: int = 1000) -> ContentStream:
    entries = [(ListedNode(path, kind, -1 if kind is FOLDER else len(text)), text) for path, kind, text in items]
    body = PLAIN + b"".join(checked_items([encode_item(entry) + text for entry, text in entries]))
    return ContentStream(body[at : at + size] for at in range(0, len(body), size))


def there(folder: Path) -> dict[bytes, object]:
    """The content of a folder: text and whether it is executable, the target of a link, None of a folder."""
    found: dict[bytes, object] = {}
    for above, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(above, name)
            if os.path.islink(path):
                found[os.path.relpath(path, os.fsencode(folder))] = os.readlink(path)
            elif os.path.isdir(path):
                found[os.path.relpath(path, os.fsencode(folder))] = None
            else:
                text = Path(os.fsdecode(path)).read_bytes()
                found[os.path.relpath(path, os.fsencode(folder))] = text, os.access(path, os.X_OK)
    return found


def test_an_empty_folder_is_filled_and_a_single_file_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_tree(stream([(b"", FILE, b"text")]), str(tmp_path / "out"), b"guide.md")
    assert there(tmp_path / "out") == {b"guide.md": (b"text", False)}


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_there_is_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    if kind == "file":
        target.write_bytes(b"mine")
    elif kind == "folder":
        target.mkdir()
        (target / "mine").write_bytes(b"mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    before = there(tmp_path)
    with pytest.raises(CommandError, match="out already exists: name a new folder, or an empty one"):
        write_tree(stream(TREE), str(target), b"")
    assert there(tmp_path) == before


def test_a_folder_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nowhere is not there: make it first"):
        write_tree(stream(TREE), str(tmp_path / "nowhere/out"), b"")


HOSTILE: dict[str, tuple[Sequence[Item], str]] = {
    "up": ([(b"..", FILE, b"x")], r"out/\.\.: a name that leads elsewhere"),
    "up below": ([(b"a", FOLDER, b""), (b"a/..", FILE, b"x")], r"out/a/\.\.: a name that leads elsewhere"),
    "out by a path": ([(b"../x", FILE, b"x")], r"out/\.\./x: a name that leads elsewhere"),
    "absolute": ([(b"/etc/x", FILE, b"x")], "out//etc/x: a name that leads elsewhere"),
    "folder of dots": ([(b".", FOLDER, b""), (b"./..", FOLDER, b"")], r"out/\.: a name that leads elsewhere"),
    "through a link": ([(b"a", LINK, b"/tmp"), (b"a/x", FILE, b"x")], "out/a/x: the server sent it before its folder"),
    "over a link": ([(b"a", LINK, b"/tmp/x"), (b"a", FILE, b"x")], "out/a: it came twice"),
    "a folder over a link": ([(b"a", LINK, b"/tmp"), (b"a", FOLDER, b"")], "out/a: it came twice"),
    "twice": ([(b"a", FILE, b"x"), (b"a", FILE, b"y")], "out/a: it came twice"),
    "NUL": ([(b"a\0b", FILE, b"x")], "out/a b: a name that no file can have"),
    "too long": ([(b"x" * 300, FILE, b"x")], "out/x+: File name too long"),
    "a link with a NUL": ([(b"a", LINK, b"x\0y")], "out/a: this link has no valid target"),
    "a link of a megabyte": ([(b"a", LINK, b"x" * (1 << 20))], "out/a: this link has no valid target"),
    "an empty link": ([(b"a", LINK, b"")], "out/a: No such file"),
    "a file as a folder": ([(b"a", FILE, b""), (b"a/b", FILE, b"x")], "out/a/b: the server sent it before its folder"),
    "an empty name": ([(b"a", FOLDER, b""), (b"a/", FILE, b"x")], "out/a/: a name that leads elsewhere"),
}


@pytest.mark.parametrize("name", [".git", ".GiT", ".git.. ", "git~1", ".g\u200cit", ".git:x", ".hg", ".BZR"])
@pytest.mark.parametrize("kind", [FOLDER, FILE, LINK])
def test_no_folder_of_a_tool_is_written(tmp_path: Path, name: str, kind: NodeType) -> None:
    items = [(b"", FOLDER, b""), (b"a", FOLDER, b""), (b"a/" + name.encode(), kind, b"x")]
    with pytest.raises(CommandError, match="a name that a version-control tool takes for its own folder"):
        write_tree(stream(items), str(tmp_path / "out"), b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [".gitignore", "git", ".gitx", "a.git", ".hgtags", ".bzrignore"])
def test_other_names_are_written(tmp_path: Path, name: str) -> None:
    write_tree(stream([(b"", FOLDER, b""), (name.encode(), FILE, b"x")]), str(tmp_path / "out"), b"")
    assert os.listdir(tmp_path / "out") == [name]


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_is_written_outside_and_nothing_stays(tmp_path: Path, case: str) -> None:
    items, why = HOSTILE[case]
    (tmp_path / "work").mkdir()
    with pytest.raises(CommandError, match=why):
        write_tree(stream([(b"", FOLDER, b""), (b"first", FILE, b"1"), *items]), str(tmp_path / "work/out"), b"")
    assert there(tmp_path) == {b"work": None}


def test_a_tree_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    cut = ContentStream([PLAIN + encode_item(ListedNode(b"a", FILE, 10)) + b"short"])
    with pytest.raises(Malformed, match="it is cut off"):
        write_tree(cut, str(tmp_path / "out"), b"")
    assert os.listdir(tmp_path) == []


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    gc.collect()  # Else what earlier tests left may go meanwhile.
    before = os.listdir("/proc/self/fd")
    write_tree(stream(TREE), str(tmp_path / "out"), b"")
    with pytest.raises(CommandError):
        write_tree(stream([*TREE, (b"a/b/..", FILE, b"x")]), str(tmp_path / "out2"), b"")
    assert os.listdir("/proc/self/fd") == before
