"""The contract of every transport, as tests to inherit: run them on each transport and each decorator.

    class TestMine(TransportSuite):
        @pytest.fixture
        def transport(self, tmp_path):
            return MyTransport(tmp_path)       # an empty tree

A transport that cannot be written to takes `transport_reads.ReadSuite` instead, which this one has in it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from transport_publishing import PublishSuite
from transport_reads import CONTENT, NO_PATHS, PATIENCE, ReadSuite

from transports import steps
from transports.base import Capability, Step, Transport
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    TransportError,
    TransportFailed,
)


class TransportSuite(ReadSuite, PublishSuite):
    """The contract of a transport that can be written to; the tests of `ReadSuite` and `PublishSuite` included."""

    def test_written_content_is_read_back(self, transport: Transport) -> None:
        """Any buffer is taken whole; bytes written are seen at once, by files open already too."""
        file = transport.create("new")
        reader = transport.open_read("new")
        file.write(b"one ")
        file.write(bytearray(b"two "))
        file.write(memoryview(b"-three-")[1:-1])
        assert reader.read_at(0, 100) == transport.get("new") == b"one two three"
        file.write(CONTENT)
        file.sync()
        file.close()
        file.close()
        assert reader.size() == transport.stat("new").size == 13 + len(CONTENT)
        reader.close()

    def test_closed_file_is_not_written(self, transport: Transport) -> None:
        """Neither written nor synced."""
        file = transport.create("new")
        file.close()
        with pytest.raises(TransportFailed):
            file.write(b"late")
        with pytest.raises(TransportFailed):
            file.sync()
        assert transport.get("new") == b""

    def test_create_takes_no_name_twice(self, transport: Transport) -> None:
        """The old file stays as it is."""
        transport.put("taken", [b"old"])
        transport.make_directory("folder")
        for name in ("taken", "folder"):
            with pytest.raises(FileExists) as caught:
                transport.create(name)
            assert caught.value.path == name
        with pytest.raises(FileExists):
            transport.put("taken", [b"new"])
        assert transport.get("taken") == b"old"

    def test_create_has_one_winner(self, transport: Transport) -> None:
        """One of several threads that make one name makes it."""
        start = threading.Barrier(8)

        def create(_: int) -> bool:
            start.wait(PATIENCE)
            try:
                transport.create("contended").close()
            except FileExists:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(create, range(8))) == 1

    def test_create_needs_its_folder(self, transport: Transport) -> None:
        """No folder is made on the way."""
        transport.put("file", [])
        with pytest.raises(NoSuchFile):
            transport.create("absent/new")
        with pytest.raises(NotADirectory):
            transport.create("file/new")
        assert transport.list_directory("") == ["file"]

    def test_append(self, transport: Transport) -> None:
        """Behind what is there, which must be a file; files open already see it."""
        transport.put("log", [b"one "])
        transport.make_directory("folder")
        if Capability.APPEND not in transport.capabilities:
            with pytest.raises(NotSupported):
                transport.append("log")
            return
        reader = transport.open_read("log")
        for text in (b"two ", CONTENT):
            file = transport.append("log")
            file.write(text)
            file.sync()
            file.close()
        with pytest.raises(TransportFailed):
            file.write(b"late")
        assert reader.read_at(0, 300_000) == transport.get("log") == b"one two " + CONTENT
        reader.close()
        with pytest.raises(NoSuchFile) as caught:
            transport.append("absent")
        assert caught.value.path == "absent"
        with pytest.raises(TransportError):
            transport.append("folder")
        with pytest.raises(NotADirectory):
            transport.append("log/below")
        assert transport.list_directory("") == ["folder", "log"]

    def test_rename_replaces_a_file(self, transport: Transport) -> None:
        """The old name is gone; whoever had the replaced file open still reads it."""
        transport.put("old", [b"old"])
        transport.put("new", [b"new"])
        reader = transport.open_read("old")
        transport.rename("new", "old")
        assert transport.list_directory("") == ["old"]
        assert transport.get("old") == b"new"
        if Capability.HANDLES in transport.capabilities:
            assert reader.read_at(0, 9) == b"old"
        reader.close()

    def test_rename_is_atomic_for_readers(self, transport: Transport) -> None:
        """A reader finds one content or the other, whole, at every moment."""
        transport.put("root", [b"0" * 1000])
        done = threading.Event()
        seen: set[bytes] = set()

        def watch() -> None:
            while not done.is_set():
                seen.add(transport.get("root"))

        with ThreadPoolExecutor(1) as threads:
            watcher = threads.submit(watch)
            for digit in b"123456789" * 5:
                transport.put("next", [bytes([digit]) * 1000])
                transport.rename("next", "root")
            done.set()
            watcher.result(PATIENCE)
        assert all(len(content) == 1000 and len(set(content)) == 1 for content in seen)

    def test_rename_between_folders(self, transport: Transport) -> None:
        """Files and whole folders move."""
        transport.make_directory("a")
        transport.make_directory("b")
        transport.put("a/file", [b"file"])
        transport.rename("a/file", "b/moved")
        transport.rename("b", "a/b")
        assert transport.list_directory("a") == ["b"]
        assert transport.get("a/b/moved") == b"file"
        assert not transport.exists("b")

    def test_rename_to_itself_changes_nothing(self, transport: Transport) -> None:
        """It is no error either."""
        transport.put("same", [b"same"])
        transport.rename("same", "same")
        assert transport.get("same") == b"same"

    def test_rename_names_what_is_missing(self, transport: Transport) -> None:
        """The source, or the target's folder."""
        transport.put("file", [])
        for source, target, missing in (("absent", "x", "absent"), ("file", "absent/x", "absent/x")):
            with pytest.raises(NoSuchFile) as caught:
                transport.rename(source, target)
            assert caught.value.path == missing
        assert transport.list_directory("") == ["file"]

    def test_rename_keeps_what_is_in_the_way(self, transport: Transport) -> None:
        """A file never replaces a folder, nor a folder a file or what holds something."""
        transport.put("file", [b"file"])
        transport.make_directory("full")
        transport.put("full/inner", [b"inner"])
        transport.make_directory("folder")
        for source, target in (("file", "full"), ("folder", "file"), ("folder", "full"), ("full", "full/inside")):
            with pytest.raises(TransportError):
                transport.rename(source, target)
        assert transport.list_directory("") == ["file", "folder", "full"]
        assert transport.get("full/inner") == b"inner"

    def test_delete(self, transport: Transport) -> None:
        """The name is free at once; whoever has the file open still reads it."""
        transport.put("file", [b"old"])
        reader = transport.open_read("file")
        transport.delete("file")
        assert not transport.exists("file")
        transport.put("file", [b"new"])
        if Capability.HANDLES in transport.capabilities:
            assert reader.read_at(0, 9) == b"old"
            assert reader.size() == 3
        reader.close()
        with pytest.raises(NoSuchFile):
            transport.delete("absent")

    def test_delete_is_for_files(self, transport: Transport) -> None:
        """And removing a folder for folders."""
        transport.make_directory("folder")
        transport.put("file", [])
        with pytest.raises(TransportError):
            transport.delete("folder")
        with pytest.raises(NotADirectory):
            transport.remove_directory("file")
        assert transport.list_directory("") == ["file", "folder"]

    def test_folders(self, transport: Transport) -> None:
        """Made one at a time, removed when empty."""
        with pytest.raises(NoSuchFile):
            transport.make_directory("a/b")
        transport.make_directory("a")
        transport.make_directory("a/b")
        with pytest.raises(FileExists):
            transport.make_directory("a")
        with pytest.raises(DirectoryNotEmpty):
            transport.remove_directory("a")
        transport.remove_directory("a/b")
        transport.remove_directory("a")
        assert transport.list_directory("") == []
        with pytest.raises(NoSuchFile):
            transport.remove_directory("a")

    def test_child_makes_and_removes_its_own_place(self, transport: Transport) -> None:
        """Its path `''` is a name in the folder above."""
        child = transport.child("repository")
        child.make_directory("")
        child.put("root", [b"1"])
        assert transport.get("repository/root") == b"1"
        child.sync_directory("")
        child.delete("root")
        child.remove_directory("")
        assert not transport.exists("repository")

    def test_sync_directory(self, transport: Transport) -> None:
        """Any folder there is can be synced, and no other."""
        transport.make_directory("folder")
        transport.put("folder/file", [])
        transport.sync_directory("folder")
        transport.sync_directory("")
        with pytest.raises(NoSuchFile):
            transport.sync_directory("absent")
        with pytest.raises(NotADirectory):
            transport.sync_directory("folder/file")

    @pytest.mark.parametrize("path", NO_PATHS)
    def test_what_is_no_path_changes_nothing(self, transport: Transport, path: str) -> None:
        """A bug of the caller, before anything is done."""
        transport.put("file", [])
        for ask in (transport.create, transport.delete, transport.make_directory, transport.remove_directory):
            with pytest.raises(ValueError):  # noqa: PT011
                ask(path)
        for source, target in ((path, "x"), ("file", path)):
            with pytest.raises(ValueError):  # noqa: PT011
                transport.rename(source, target)
            with pytest.raises(ValueError):  # noqa: PT011
                transport.publish(source, target)
            with pytest.raises(ValueError):  # noqa: PT011
                transport.withdraw(source, target)
        assert transport.list_directory("") == ["file"]

    def test_steps_that_change(self, transport: Transport) -> None:
        """Each sees what those before it did."""
        read, gone, names = steps.Get("new/b"), steps.Get("new/a"), steps.ListDirectory("new")
        done: list[Step] = [
            steps.MakeDirectory("new"),
            steps.Put("new/a", b"a"),
            steps.Put("new/none"),
            steps.Rename("new/a", "new/b"),
            read,
            gone,
            names,
        ]
        transport.perform([*done, steps.SyncDirectory("new"), steps.SyncDirectory("")])
        assert (read.content, gone.result, names.result) == (b"a", None, ["b", "none"])
        left = steps.ListDirectory("new")
        transport.perform([steps.Delete("new/b"), steps.Delete("new/none"), left])
        assert left.result == []

    def test_steps_replace_a_file(self, transport: Transport) -> None:
        """A rename over a file, between a read before and one after it."""
        transport.put("root", [b"old"])
        before, after = steps.Get("root"), steps.Get("root")
        transport.perform(
            [before, steps.Put("root.1", b"new"), steps.Rename("root.1", "root"), steps.SyncDirectory(""), after]
        )
        assert (before.content, after.content) == (b"old", b"new")

    def test_the_first_step_that_fails_ends_it(self, transport: Transport) -> None:
        """The steps before it are done; those after it change nothing."""
        transport.make_directory("there")
        read = steps.Get("before")
        wanted: list[tuple[Step, type[TransportError], str]] = [
            (steps.MakeDirectory("there"), FileExists, "there"),
            (steps.Put("before", b"taken"), FileExists, "before"),
            (steps.Put("absent/x", b"y"), NoSuchFile, "absent/x"),
            (steps.Rename("absent", "elsewhere"), NoSuchFile, "absent"),
            (steps.Delete("absent"), NoSuchFile, "absent"),
            (steps.Publish("before", "full"), FileExists, "full"),
            (steps.Publish("absent", "elsewhere"), NoSuchFile, "absent"),
            (steps.Withdraw("absent", "aside"), NoSuchFile, "absent"),
        ]
        transport.perform([steps.MakeDirectory("full"), steps.Put("full/x", b"x"), steps.Put("before", b"before")])
        for number, (step, error, path) in enumerate(wanted):
            done, never = (
                steps.Put(f"done{number}", b"1"),
                [steps.Put("never", b"1"), steps.MakeDirectory("none"), steps.Rename("before", "after")],
            )
            with pytest.raises(error) as wrong:
                transport.perform([done, step, *never, steps.Delete("full/x"), steps.Delete("before")])
            assert getattr(wrong.value, "path", None) == path
            assert transport.get(f"done{number}") == b"1"
        names = [name for name in transport.list_directory("") if not name.startswith("done")]
        assert names == ["before", "full", "there"]
        transport.perform([read])
        assert (read.content, transport.list_directory("full")) == (b"before", ["x"])

    @pytest.mark.parametrize("path", NO_PATHS)
    def test_a_step_with_no_path_changes_nothing(self, transport: Transport, path: str) -> None:
        """A bug of the caller, seen before anything is done."""
        with pytest.raises(ValueError, match=r"path|surrogate"):
            transport.perform([steps.MakeDirectory(path)])
        with pytest.raises(ValueError, match=r"path|surrogate"):
            transport.perform([steps.Get(path)])
        assert transport.list_directory("") == []

    def test_steps_of_a_folder_below(self, transport: Transport) -> None:
        """Named from above, they are the same: what comes of them is there too."""
        look, record = steps.GetStat("a"), steps.GetPublished("log/1")
        below: list[Step] = [
            steps.MakeDirectory(""),
            steps.MakeDirectory("log"),
            steps.Put("a", b"content"),
            steps.Publish("a", "log/1"),
            record,
            steps.Withdraw("log/1", "aside"),
            steps.Put("b", b""),
            steps.Rename("b", "a"),
            look,
        ]
        transport.perform([step.below("folder") for step in below])
        assert record.result == b"content"
        assert look.result == transport.stat("folder/a")
        assert transport.list_directory("folder") == ["a", "log"]
