"""memory_transport: what outlives a crash; the promises of every transport are in tests/conformance."""

from __future__ import annotations

import pytest
from memory_transport import Aftermath, MemoryTransport

from transports.errors import TransportFailed

SEEDS = range(60)


def tree(transport: MemoryTransport, path: str = "") -> dict[str, bytes | None]:
    """Every path; None for a folder."""
    found: dict[str, bytes | None] = {}
    for name in transport.list_directory(path):
        full = f"{path}/{name}" if path else name
        try:
            found[full] = transport.get(full)
        except TransportFailed:
            found |= {full: None, **tree(transport, full)}
    return found


def started() -> MemoryTransport:
    """A durable tree: `packs/`, `incoming/`, `root` = old."""
    transport = MemoryTransport()
    transport.make_directory("packs")
    transport.make_directory("incoming")
    transport.put("root", [b"old"])
    transport.sync_directory("")
    return transport


START = {"incoming": None, "packs": None, "root": b"old"}


def test_content_is_durable_up_to_its_last_sync() -> None:
    transport = started()
    transport.create("never").write(b"x" * 10)
    file = transport.create("new")
    file.write(b"synced")
    file.sync()
    file.write(b" and not")
    transport.sync_directory("")
    assert tree(transport.crash()) == START | {"new": b"synced", "never": b""}


def test_a_folder_is_gone_with_its_names_or_back_with_what_it_held() -> None:
    transport = started()
    transport.make_directory("packs/deep")
    transport.put("packs/deep/x", [b"x"])
    transport.sync_directory("packs/deep")
    assert tree(transport.crash()) == START
    transport = started()
    transport.put("packs/x", [b"x"])
    transport.sync_directory("packs")
    transport.delete("packs/x")
    transport.remove_directory("packs")
    assert tree(transport.crash()) == START | {"packs/x": b"x"}


def test_each_folder_is_synced_for_itself() -> None:
    """The write order of a store must sync both: the name in `packs` is not durable by the root's sync."""
    transport = started()
    transport.put("incoming/x", [b"x"])
    transport.sync_directory("incoming")
    transport.rename("incoming/x", "packs/x")
    transport.put("next", [b"new"])
    transport.rename("next", "root")
    transport.sync_directory("")
    assert tree(transport.crash()) == START | {"root": b"new", "incoming/x": b"x"}


def test_move_between_folders_never_loses_the_file() -> None:
    """The old name goes only when the new one is durable."""
    for synced, expected in (
        (["incoming"], {"incoming/x"}),
        (["packs"], {"incoming/x", "packs/x"}),
        (["packs", "incoming"], {"packs/x"}),
        (["incoming", "packs"], {"incoming/x", "packs/x"}),
    ):
        transport = started()
        transport.put("incoming/x", [b"x"])
        transport.sync_directory("incoming")
        transport.rename("incoming/x", "packs/x")
        for folder in synced:
            transport.sync_directory(folder)
        assert tree(transport.crash()).keys() - START.keys() == expected


def test_move_between_folders_never_loses_the_file_by_any_order() -> None:
    for seed in SEEDS:
        transport = started()
        transport.put("incoming/x", [b"x"])
        transport.sync_directory("incoming")
        transport.rename("incoming/x", "packs/x")
        transport.put("incoming/x", [b"another"])
        found = tree(transport.crash(Aftermath.SOME, seed))
        assert b"x" in (found.get("incoming/x"), found.get("packs/x"))


def test_a_file_with_two_names_is_one_file_after_a_crash() -> None:
    """Each name is durable by its own folder's sync, and what one name shows the other shows."""
    for synced, expected in (([], set()), (["packs"], {"packs/x"}), (["incoming", "packs"], {"incoming/x", "packs/x"})):
        transport = started()
        transport.put("incoming/x", [b"x"])
        transport.link("incoming/x", "packs/x")
        for folder in synced:
            transport.sync_directory(folder)
        assert tree(transport.crash()).keys() - START.keys() == expected
    contents = set[bytes]()
    for seed in SEEDS:
        transport = started()
        file = transport.create("incoming/x")
        file.write(b"torn")
        transport.link("incoming/x", "packs/x")
        after = transport.crash(Aftermath.TORN, seed)
        assert after.get("incoming/x") == after.get("packs/x")
        contents.add(after.get("packs/x"))
        after.append("incoming/x").write(b", and more")
        assert after.get("packs/x").endswith(b", and more")
    assert len(contents) > 1


def test_torn_content_keeps_what_was_synced() -> None:
    """Every way to tear turns up: cut, zeros, the beginning or the end alone."""
    found: set[bytes] = set()
    for seed in SEEDS:
        transport = started()
        file = transport.create("new")
        file.write(b"SAFE")
        file.sync()
        file.write(b"lost")
        content = transport.crash(Aftermath.TORN, seed).get("new")
        assert content.startswith(b"SAFE")
        found.add(content[4:])
    assert {b"", b"l", b"\0\0\0\0", b"lo\0\0", b"\0\0st"} <= found


def test_after_a_crash_the_old_objects_are_dead() -> None:
    transport = started()
    child = transport.child("packs")
    writer = child.create("x")
    reader = transport.open_read("root")
    after = transport.crash(Aftermath.EVERYTHING)
    for call in (
        lambda: transport.get("root"),
        lambda: child.create("y"),
        lambda: writer.write(b"x"),
        writer.sync,
        lambda: reader.read_at(0, 1),
        transport.crash,
    ):
        with pytest.raises(TransportFailed, match="crashed"):
            call()
    writer.close()
    assert tree(after) == START | {"packs/x": b""}
