"""cli.browsing, cli.log, cli.as_json, cli.exporting: places with a revision, dates, lines of JSON that do no harm to a
terminal; and trees as files, with nothing outside their folder, whatever comes."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from smartserver.cli.as_json import json_line
from smartserver.cli.browsing import split_revision
from smartserver.cli.errors import CommandError
from smartserver.cli.exporting import write_tree
from smartserver.cli.log import date_of
from smartserver.records.browse import (
    PLAIN,
    ContentStream,
    ListedNode,
    LogEntry,
    NodeType,
    checked_items,
    encode_item,
)
from smartserver.records.varint import Malformed


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("hpss://host/project", ("hpss://host/project", "")),
        ("hpss://host/project@main", ("hpss://host/project", "main")),
        ("hpss://host/project/doc@feature/x@2", ("hpss://host/project/doc", "feature/x@2")),
        ("hpss+ssh://me@host/srv/project", ("hpss+ssh://me@host/srv/project", "")),
        ("hpss+ssh://me@host/srv/project@v1", ("hpss+ssh://me@host/srv/project", "v1")),
        ("hpss://host", ("hpss://host", "")),
        ("hpss://me@host", ("hpss://me@host", "")),
        ("hpss://host/a%40b@c", ("hpss://host/a%40b", "c")),
        ("/srv/project@main", ("/srv/project", "main")),
        ("project@", ("project", "")),
    ],
)
def test_a_place_and_its_revision(place: str, expected: tuple[str, str]) -> None:
    assert split_revision(place) == expected


def test_a_folder_with_an_at_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    assert split_revision(f"{tmp_path}/a@b") == (f"{tmp_path}/a@b", "")
    assert split_revision(f"{tmp_path}/a@c") == (f"{tmp_path}/a", "c")
    assert split_revision(f"{tmp_path}/a@b/doc@x/y") == (f"{tmp_path}/a@b/doc", "x/y")


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(CommandError, match="the name of the revision is not UTF-8"):
        split_revision("hpss://host/project@\udce4")


@pytest.mark.parametrize(
    ("seconds", "zone", "expected"),
    [
        (0, 0, "1970-01-01 00:00:00 +0000"),
        (1_800_000_000, 90, "2027-01-15 09:30:00 +0130"),
        (-1, -480, "1969-12-31 15:59:59 -0800"),
        (1 << 60, 0, f"{1 << 60} seconds after 1970"),
        (0, 60 * 24 * 2, "0 seconds after 1970"),
    ],
)
def test_a_date_is_that_of_the_author(seconds: int, zone: int, expected: str) -> None:
    assert date_of(LogEntry("", "", seconds, zone)) == expected


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a b", b'"a b"'),
        ("日本é😀", '"日本é😀"'.encode()),
        ('"\\\n\x1b', b'"\\"\\\\\\n\\u001b"'),
        ("\x7f\x80\x9b\x9f", b'"\\u007f\\u0080\\u009b\\u009f"'),
        ("\u200e\u202e\u2066\u2028\ufeff", b'"\\u200e\\u202e\\u2066\\u2028\\ufeff"'),
        ("\U000e0001", b'"\\udb40\\udc01"'),
    ],
)
def test_what_could_command_a_terminal_is_escaped(name: str, line: bytes) -> None:
    assert json_line({"path": name}) == b'{"path":' + line + b"}\n"
    assert json.loads(json_line({"path": name})) == {"path": name}


# -- export


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
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = None if path.is_dir() else (path.read_bytes(), os.access(path, os.X_OK))
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
    with pytest.raises(CommandError, match="out already exists: choose a new folder, or an empty one"):
        write_tree(stream(TREE), str(target), b"")
    with pytest.raises(CommandError, match="nowhere does not exist: create it first"):
        write_tree(stream(TREE), str(tmp_path / "nowhere/out"), b"")
    assert there(tmp_path) == before


HOSTILE: dict[str, tuple[Sequence[Item], str]] = {
    "up": ([(b"..", FILE, b"x")], r"out/\.\.: a name that leads elsewhere"),
    "up below": ([(b"a", FOLDER, b""), (b"a/..", FILE, b"x")], r"out/a/\.\.: a name that leads elsewhere"),
    "out by a path": ([(b"../x", FILE, b"x")], r"out/\.\./x: a name that leads elsewhere"),
    "absolute": ([(b"/etc/x", FILE, b"x")], "out//etc/x: a name that leads elsewhere"),
    "folder of dots": ([(b".", FOLDER, b""), (b"./..", FOLDER, b"")], r"out/\.: a name that leads elsewhere"),
    "through a link": (
        [(b"a", LINK, b"/tmp"), (b"a/x", FILE, b"x")],
        "out/a/x: the server's answer is damaged: it lacks the folder of this file",
    ),
    "over a link": ([(b"a", LINK, b"/tmp/x"), (b"a", FILE, b"x")], "out/a: it came twice"),
    "a folder over a link": ([(b"a", LINK, b"/tmp"), (b"a", FOLDER, b"")], "out/a: it came twice"),
    "twice": ([(b"a", FILE, b"x"), (b"a", FILE, b"y")], "out/a: it came twice"),
    "NUL": ([(b"a\0b", FILE, b"x")], "out/a b: a name that no file can have"),
    "too long": ([(b"x" * 300, FILE, b"x")], "out/x+: File name too long"),
    "a link with a NUL": ([(b"a", LINK, b"x\0y")], "out/a: this link has no valid target"),
    "a link of a megabyte": ([(b"a", LINK, b"x" * (1 << 20))], "out/a: this link has no valid target"),
    "an empty link": ([(b"a", LINK, b"")], "out/a: No such file"),
    "a file as a folder": (
        [(b"a", FILE, b""), (b"a/b", FILE, b"x")],
        "out/a/b: the server's answer is damaged: it lacks the folder of this file",
    ),
    "an empty name": ([(b"a", FOLDER, b""), (b"a/", FILE, b"x")], "out/a/: a name that leads elsewhere"),
}


@pytest.mark.parametrize("name", [".git", ".GiT", ".git.. ", "git~1", ".g\u200cit", ".git:x", ".hg", ".BZR"])
@pytest.mark.parametrize("kind", [FOLDER, FILE, LINK])
def test_no_folder_of_a_tool_is_written(tmp_path: Path, name: str, kind: NodeType) -> None:
    items = [(b"", FOLDER, b""), (b"a", FOLDER, b""), (b"a/" + name.encode(), kind, b"x")]
    with pytest.raises(CommandError, match="a name that a version-control tool takes for its own folder"):
        write_tree(stream(items), str(tmp_path / "out"), b"")
    assert os.listdir(tmp_path) == []


def test_other_names_are_written(tmp_path: Path) -> None:
    names = [".bzrignore", ".gitignore", ".gitx", ".hgtags", "a.git", "git"]
    files = [(name.encode(), FILE, b"x") for name in names]
    write_tree(stream([(b"", FOLDER, b""), *files]), str(tmp_path / "out"), b"")
    assert sorted(os.listdir(tmp_path / "out")) == names


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
