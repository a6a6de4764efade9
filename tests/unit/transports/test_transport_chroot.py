"""transports.decorators.chroot: no way out of the tree; errors say nothing of what is around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from transports.base import Transport
from transports.decorators.chroot import ChrootTransport
from transports.errors import NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.local import LocalTransport
from transports.steps import Append, Delete, Get, Put, Rename


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with links in it and out of it, and a secret beside it whose name begins as its own."""
    made = tmp_path / "served" / "tree"
    (made / "folder").mkdir(parents=True)
    (made / "folder" / "x").write_bytes(b"x")
    (tmp_path / "served" / "tree2").mkdir()
    (tmp_path / "served" / "tree2" / "secret").write_bytes(b"secret")
    (made / "within").symlink_to("folder")
    (made / "out").symlink_to("../tree2")
    (made / "absolute").symlink_to(tmp_path)
    (made / "folder" / "up").symlink_to("..")
    return made


@pytest.fixture
def transport(tree: Path) -> Transport:
    return ChrootTransport(LocalTransport(tree.parents[1]).child("served"), "tree")


USES: list[Callable[[Transport, str], object]] = [
    lambda transport, path: transport.get(path),
    lambda transport, path: transport.open_read(path),
    lambda transport, path: transport.create(f"{path}.new"),
    lambda transport, path: transport.put(f"{path}.new", []),
    lambda transport, path: transport.append(path),
    lambda transport, path: transport.rename(path, "moved"),
    lambda transport, path: transport.rename("folder/x", f"{path}.new"),
    lambda transport, path: transport.delete(path),
    lambda transport, path: transport.make_directory(f"{path}.new"),
    lambda transport, path: transport.remove_directory(path),
    lambda transport, path: transport.list_directory(path),
    lambda transport, path: transport.stat(path),
    lambda transport, path: transport.sync_directory(path),
    lambda transport, path: transport.lock(path).__enter__(),
    lambda transport, path: transport.try_lock(path).__enter__(),
    lambda transport, path: transport.real_path(path),
    lambda transport, path: transport.perform([Get("folder/x"), Get(path)]),
    lambda transport, path: transport.perform([Delete("folder/x"), Put(f"{path}.new")]),
    lambda transport, path: transport.perform([Append("folder/x", b"more"), Append(path, b"more")]),
    lambda transport, path: transport.perform([Rename("folder/x", f"{path}.new")]),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", ["out/secret", "absolute/served/tree2/secret", "within/up/out/secret"])
def test_no_way_out(transport: Transport, tree: Path, use: Callable[[Transport, str], object], path: str) -> None:
    with pytest.raises(PermissionDenied, match=r"^it leads out of the tree: '"):
        use(transport, path)
    assert sorted(each.name for each in (tree.parent / "tree2").iterdir()) == ["secret"]
    assert (tree.parent / "tree2" / "secret").read_bytes() == b"secret"
    assert (tree / "folder" / "x").read_bytes() == b"x"


def test_links_within_are_followed(transport: Transport) -> None:
    assert transport.get("within/up/folder/x") == b"x"
    assert transport.child("within").child("up").list_directory("folder") == ["up", "x"]
    assert transport.real_path("within/x") == "/folder/x"


def test_a_child_may_be_left_within_the_tree(transport: Transport) -> None:
    child = transport.child("folder")
    assert child.get("up/within/x") == b"x"
    with pytest.raises(PermissionDenied) as wrong:
        child.get("up/out/secret")
    assert wrong.value.path == "folder/up/out/secret"


def test_errors_name_paths_from_the_top_of_the_tree(transport: Transport) -> None:
    for ask in (
        lambda: transport.get("folder/absent"),
        lambda: transport.child("folder").get("absent"),
        lambda: transport.perform([Get("folder/x"), Delete("folder/absent")]),
        lambda: transport.rename("folder/absent", "x"),
    ):
        with pytest.raises(NoSuchFile) as wrong:
            ask()
        assert wrong.value.path == "folder/absent"
    with pytest.raises(TransportError) as locked, transport.child("folder").lock(""):
        raise AssertionError("locked a folder")
    assert "served" not in str(locked.value)


def test_errors_of_open_files_name_them_from_the_top_of_the_tree(transport: Transport) -> None:
    child = transport.child("folder")
    read, appended, written = child.open_read("x"), child.append("x"), child.create("y")
    uses: list[Callable[[], object]] = [
        lambda: read.read_at(0, 1),
        lambda: read.read_ranges([(0, 1)]),
        read.size,
        lambda: appended.write(b"x"),
        appended.sync,
        lambda: written.write(b"y"),
        written.sync,
    ]
    for file in (read, appended, written):
        file.close()
    named = []
    for use in uses:
        with pytest.raises(TransportFailed) as wrong:
            use()
        named.append(wrong.value.path)
    assert named == ["folder/x"] * 5 + ["folder/y"] * 2
