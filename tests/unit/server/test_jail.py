"""server.jail, server.jailed: which paths may be a repository's, and what of the served folder files may be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from smartserver.errors import InvalidPath
from smartserver.server.jail import MAX_PART, RESERVED, clean, place
from smartserver.server.jailed import JailedTransport
from smartserver.store.format import LINE, NAMES, recognise
from smartserver.wire.limits import MAX_PATH
from transports.base import Transport
from transports.errors import NoSuchFile, NotADirectory, PermissionDenied, TransportError
from transports.local import LocalTransport


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", ""),
        ("/", ""),
        ("a", "a"),
        ("//a/b//", "a/b"),
        ("a/b/c.git", "a/b/c.git"),
        ("a b", "a b"),
        ("a..b", "a..b"),
        ("~user/a", "~user/a"),
        ("%2e%2e", "%2e%2e"),
        ("Packs", "Packs"),
        ("gr\u00fc\u00dfe/\u65e5\u672c", "gr\u00fc\u00dfe/\u65e5\u672c"),
        ("x" * MAX_PART, "x" * MAX_PART),
        ("/".join(["x" * 127] * 8), "/".join(["x" * 127] * 8)),
    ],
)
def test_what_may_be_a_path(path: str, name: str) -> None:
    assert clean(path) == name
    assert clean(name) == name


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a//b", "empty"),
        ("..", "not allowed"),
        (".", "not allowed"),
        ("a/../b", "not allowed"),
        ("a/./b", "not allowed"),
        (".git", "begins with a dot"),
        ("a/.ssh/b", "begins with a dot"),
        ("...", "begins with a dot"),
        ("packs", "the store uses"),
        ("a/root/b", "the store uses"),
        ("a\\b", "backslash"),
        ("..\\a", "begins with a dot"),
        ("a\0b", "control"),
        ("a\x9b", "control"),
        ("a\ud800", "control"),
        ("gru\u0308n", "NFC"),
        ("x" * (MAX_PART + 1), f"longer than {MAX_PART} bytes"),
        ("\u00fc" * (MAX_PART // 2 + 1), f"longer than {MAX_PART} bytes"),
        ("/".join(["x" * 127] * 8) + "/x", f"longer than {MAX_PATH} bytes"),
        ("/" * (MAX_PATH + 1), f"longer than {MAX_PATH} bytes"),
        ("\ud800" * MAX_PATH, f"longer than {MAX_PATH} bytes"),
    ],
)
def test_what_may_not(path: str, why: str) -> None:
    with pytest.raises(InvalidPath) as invalid:
        clean(path)
    assert why in invalid.value.why
    assert len(str(invalid.value)) < MAX_PATH + 200


@pytest.mark.parametrize("end", ["", "\\", "/.hidden", "/" + "y" * 300 + "\n"])
def test_a_long_path_is_not_said_back_in_full(end: str) -> None:
    with pytest.raises(InvalidPath) as invalid:
        clean("x" * 300 + end)
    assert str(invalid.value).count("x" * 80 + "...'") >= 1
    assert len(str(invalid.value)) < 300


def test_every_name_the_store_uses_is_reserved() -> None:
    assert NAMES <= RESERVED


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", ""),
        ("/a/b/", "a/b"),
        ("a/.bzrignore", "a"),
        ("a/b/log/c", "a/b"),
        ("packs", ""),
        (".a/b", ""),
        ("a/" + "x" * (MAX_PART + 1), "a"),
        ("a/e\u0301/b", "a"),
    ],
)
def test_how_much_of_a_path_may_be_a_repository(path: str, name: str) -> None:
    assert place(path) == name
    assert clean(name) == name


@pytest.mark.parametrize("path", ["a//b", "a/../b", "a/.", "a/b\\c", "a/\n", "a/\ud800", "a/" + "x" * MAX_PATH])
def test_what_cannot_be_in_a_branch_either(path: str) -> None:
    with pytest.raises(InvalidPath):
        place(path)


SECRET = b"nobody's"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The served folder; beside it lies a file that is not."""
    (tmp_path / "secret").write_bytes(SECRET)
    folder = tmp_path / "served"
    (folder / "team" / "inner").mkdir(parents=True)
    (folder / "team" / "file").write_bytes(b"file")
    (folder / ".hidden").write_bytes(SECRET)
    return folder


@pytest.fixture
def jailed(folder: Path) -> JailedTransport:
    return JailedTransport(LocalTransport(folder), "")


def calls(jailed: Transport, path: str) -> dict[str, Callable[[], object]]:
    """Every call that takes a path, by its name."""
    return {
        "get": lambda: jailed.get(path),
        "open_read": lambda: jailed.open_read(path),
        "list_directory": lambda: jailed.list_directory(path),
        "stat": lambda: jailed.stat(path),
        "exists": lambda: jailed.exists(path),
        "sync_directory": lambda: jailed.sync_directory(path),
        "create": lambda: jailed.create(path),
        "append": lambda: jailed.append(path),
        "put": lambda: jailed.put(path, [b"x"]),
        "rename": lambda: jailed.rename(path, "team/new"),
        "rename to": lambda: jailed.rename("team/file", path),
        "link": lambda: jailed.link(path, "team/new"),
        "link to": lambda: jailed.link("team/file", path),
        "delete": lambda: jailed.delete(path),
        "make_directory": lambda: jailed.make_directory(path),
        "remove_directory": lambda: jailed.remove_directory(path),
        "child": lambda: jailed.child(path),
    }


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything there is, links not followed."""
    found: dict[str, bytes | None] = {}
    for each in sorted(folder.rglob("*")):
        name = str(each.relative_to(folder))
        found[name] = each.read_bytes() if each.is_file() and not each.is_symlink() else None
    return found


def test_links_within_are_followed(jailed: JailedTransport, folder: Path) -> None:
    """And the link itself is what is deleted."""
    (folder / "alias").symlink_to("team")
    (folder / "shortcut").symlink_to("team/file")
    assert jailed.get("alias/file") == jailed.get("shortcut") == b"file"
    jailed.put("alias/new", [b"new"])
    assert (folder / "team" / "new").read_bytes() == b"new"
    jailed.delete("shortcut")
    assert jailed.get("team/file") == b"file"
    with pytest.raises(NoSuchFile) as wrong:
        jailed.get("alias/absent")
    assert wrong.value.path == "alias/absent"


@pytest.mark.parametrize("source", ["link", "loop", "lost", "team", "team/inner"])
def test_links_are_not_renamed(jailed: JailedTransport, folder: Path, source: str) -> None:
    """Nor what holds one: in another folder `../..` is another place, and may be above all that is served."""
    (folder / "link").symlink_to("team")
    (folder / "loop").symlink_to("../served/loop")
    (folder / "lost").symlink_to("team/absent")
    (folder / "team" / "inner" / "link").symlink_to("../../team")
    before = snapshot(folder)
    with pytest.raises(TransportError) as wrong:
        jailed.rename(source, "moved")
    assert wrong.value.wire_arguments()["path"] == source
    if source != "loop":  # Which nothing can be asked about.
        assert "link" in str(wrong.value)
    assert snapshot(folder) == before
    with pytest.raises(TransportError):
        jailed.publish(source, "moved")
    assert snapshot(folder) == before
    jailed.rename("team/file", "link")
    assert jailed.get("link") == b"file"


def test_a_link_in_what_was_published_does_not_lead_out(jailed: JailedTransport, folder: Path) -> None:
    (folder / "team" / "inner" / "record").symlink_to("../../../secret")
    with pytest.raises(InvalidPath, match="leads out"):
        jailed.get_published("team/inner")


def test_a_link_to_a_name_nobody_can_have(jailed: JailedTransport, folder: Path) -> None:
    os.mkdir(os.fsencode(folder) + b"/\xff")
    (folder / "odd").symlink_to(os.fsdecode(b"\xff"))
    with pytest.raises(InvalidPath):
        jailed.list_directory("odd")


def test_a_listing_shows_what_can_be_asked_for(jailed: JailedTransport, folder: Path) -> None:
    (folder / "back\\slash").write_bytes(b"")
    (folder / "new\nline").write_bytes(b"")
    assert jailed.list_directory("") == ["team"]


def test_errors_name_what_was_asked_for(folder: Path) -> None:
    below = JailedTransport(LocalTransport(folder), "team")
    for call, path in (("get", "absent"), ("stat", "inner/absent"), ("append", "absent"), ("delete", "absent")):
        with pytest.raises(NoSuchFile) as wrong:
            calls(below, path)[call]()
        assert wrong.value.path == path
    with pytest.raises(NoSuchFile) as wrong:
        below.rename("file", "absent/new")
    assert wrong.value.path == "absent/new"
    with pytest.raises(NoSuchFile) as wrong:
        below.rename("absent", "new")
    assert wrong.value.path == "absent"
    with pytest.raises(NotADirectory) as other:
        below.rename("inner", "file")
    assert other.value.path == "file"
    assert below.describe("file") == "team/file"
    assert below.child("inner").describe() == "team/inner"


CHANGES = [
    "create",
    "append",
    "put",
    "rename",
    "rename to",
    "link",
    "link to",
    "delete",
    "make_directory",
    "remove_directory",
]


def test_the_served_folder_itself_is_not_changed(jailed: JailedTransport, folder: Path) -> None:
    for call in CHANGES:
        with pytest.raises(PermissionDenied, match="served folder itself"):
            calls(jailed, "")[call]()
    assert folder.is_dir()


# -- repositories


OLD = b"smartserver repository 1 swap=file\n"
"""The format of another release."""


def repository(folder: Path, name: str, line: bytes = LINE) -> None:
    for each in ("packs", "log"):
        (folder / name / each).mkdir(parents=True)
    (folder / name / "format").write_bytes(line)
    (folder / name / "log" / "1").write_bytes(b"record")


INSIDE = ["project/log/1", "project/packs/new", "project/format", "project/packs", "project", "alias/log", "packed/x"]


@pytest.mark.parametrize("call", CHANGES)
@pytest.mark.parametrize("path", INSIDE)
def test_a_repository_of_another_release_is_not_changed(
    jailed: JailedTransport, folder: Path, call: str, path: str
) -> None:
    """Nor by way of a link to it or into it."""
    repository(folder, "project", OLD)
    (folder / "alias").symlink_to("project")
    (folder / "packed").symlink_to("project/packs")
    before = snapshot(folder)
    with pytest.raises(PermissionDenied, match="another release") as wrong:
        calls(jailed, path)[call]()
    assert wrong.value.path == path
    assert snapshot(folder) == before


@pytest.mark.parametrize("content", [b"", b"something else\n", b"smartserver repository 9\n", b"x" * 1000])
def test_what_may_be_a_repository_is_not_changed(jailed: JailedTransport, folder: Path, content: bytes) -> None:
    (folder / "team" / "format").write_bytes(content)
    with pytest.raises(PermissionDenied, match="another release") as wrong:
        jailed.put("team/new", [b"x"])
    assert wrong.value.path == "team/new"


def test_a_folder_of_that_name_is_no_format(jailed: JailedTransport, folder: Path) -> None:
    (folder / "team" / "format").mkdir()
    jailed.put("team/format/new", [b"x"])


def check_that_nothing_makes(jailed: JailedTransport, folder: Path, made: str, why: str) -> None:
    (folder / "line").write_bytes(LINE)
    (folder / "alias").symlink_to(made)
    before = snapshot(folder)
    for change in (
        lambda: jailed.put(made, [LINE]),
        lambda: jailed.create(made),
        lambda: jailed.append(made),
        lambda: jailed.append("alias"),
        lambda: jailed.rename("line", made),
        lambda: jailed.publish("line", made),
        lambda: jailed.make_directory(made),
    ):
        with pytest.raises(PermissionDenied, match=why):
            change()
    assert snapshot(folder) == before


@pytest.mark.parametrize("place", ["", "team", "team/inner"])
def test_no_folder_with_something_in_it_is_made_a_repository(jailed: JailedTransport, folder: Path, place: str) -> None:
    """Everybody would take it for one: of that in the served folder nothing would be seen or changed any more."""
    (folder / "team" / "inner" / "file").write_bytes(b"")
    made = f"{place}/format".lstrip("/")
    check_that_nothing_makes(jailed, folder, made, "'format' can be created only with a new repository")


@pytest.mark.parametrize("name", ["smartserver-preview", "smartserver-cluster"])
@pytest.mark.parametrize("place", ["", "team/"])
def test_no_file_that_leads_elsewhere_is_made(jailed: JailedTransport, folder: Path, place: str, name: str) -> None:
    check_that_nothing_makes(jailed, folder, place + name, f"'{name}' can be created only on the server's machine")


def test_repositories_are_not_moved_with_a_folder(jailed: JailedTransport, folder: Path) -> None:
    """Nor with another repository in which they lie."""
    repository(folder, "team/inner/project", OLD)
    with pytest.raises(PermissionDenied, match="another release") as wrong:
        jailed.rename("team", "moved")
    assert wrong.value.path == "team"
    for above in (folder / "team", folder / "team" / "inner"):
        (above / "format").write_bytes(LINE)
        for source in ("team", "team/inner"):
            with pytest.raises(PermissionDenied, match="another release"):
                jailed.rename(source, "moved")
    (folder / "team" / "inner" / "project" / "format").write_bytes(LINE)
    jailed.rename("team", "moved")
    assert jailed.get("moved/inner/project/log/1") == b"record"


def test_what_cannot_be_looked_through_is_not_moved(
    jailed: JailedTransport, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files take time too."""
    monkeypatch.setattr("smartserver.server.jailed.MAX_MOVED", 10)
    for number in range(8):
        (folder / "team" / "inner" / str(number)).write_bytes(b"")
    with pytest.raises(PermissionDenied, match="more than 10 files and folders"):
        jailed.rename("team", "moved")
    (folder / "team" / "file").unlink()
    jailed.rename("team", "moved")


@pytest.mark.parametrize("path", [".git", "team/.hg", "...", ".git/HEAD"])
def test_what_begins_with_a_dot_is_not_there(jailed: JailedTransport, folder: Path, path: str) -> None:
    for call in (jailed.get, jailed.open_read, jailed.stat, jailed.list_directory):
        with pytest.raises(NoSuchFile) as wrong:
            call(path)
        assert wrong.value.path == path
    assert not jailed.exists(path)
    for change in (jailed.make_directory, jailed.delete, jailed.create):
        with pytest.raises(InvalidPath, match="begins with a dot"):
            change(path)


def test_no_other_tool_is_recognised_where_nothing_is(jailed: JailedTransport) -> None:
    assert recognise(jailed) is None
