"""The contract of every transport that can be read, as tests to inherit: the part of `transport_suite` that changes
nothing.

class TestMine(ReadSuite):
    @pytest.fixture
    def transport(self, storage):
        return MyView(storage)

    @pytest.fixture
    def storage(self):
        return MemoryTransport()           # an empty tree, which `MyView` shows and cannot change
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import NoSuchFile, NotADirectory, TransportError, TransportFailed

PATIENCE = 30.0
"""Seconds after which a thread that should have finished counts as stuck."""

NO_PATHS = ["/a", "a/", "a//b", "..", "a/../b", ".", "a/./b", "a\0b", "a\udc80"]
"""Strings that are no path."""

CONTENT = bytes(range(256)) * 1000


def populate(storage: Transport) -> None:
    """The tree `ReadSuite` reads: `content`, `empty`, `folder/inner`, `folder/deep/`, `folder/naïve 文`."""
    storage.put("content", [CONTENT])
    storage.put("empty", [])
    storage.make_directory("folder")
    storage.put("folder/inner", [b"inner"])
    storage.make_directory("folder/deep")
    storage.put("folder/naïve 文", [b"name"])


class ReadSuite:
    """The questions about a tree that do not change it."""

    @pytest.fixture
    def transport(self) -> Transport:
        """The transport under test, empty."""
        raise NotImplementedError("a suite's subclass gives the transport under test")

    @pytest.fixture
    def storage(self, transport: Transport) -> Transport:
        """The same tree, writable."""
        return transport

    @pytest.fixture
    def filled(self, storage: Transport, transport: Transport) -> Transport:
        """The transport under test with the tree of `populate`."""
        populate(storage)
        return transport

    def test_get_gives_the_whole_content(self, filled: Transport) -> None:
        """Empty files and names beyond ASCII included."""
        assert filled.get("content") == CONTENT
        assert filled.get("empty") == b""
        assert filled.get("folder/naïve 文") == b"name"

    def test_read_at_any_place(self, filled: Transport) -> None:
        """Reads are short only at the end."""
        file = filled.open_read("content")
        assert file.size() == len(CONTENT)
        assert file.read_at(0, len(CONTENT)) == CONTENT
        assert file.read_at(70_000, 300) == CONTENT[70_000:70_300]
        assert file.read_at(len(CONTENT) - 3, 100) == CONTENT[-3:]
        assert file.read_at(len(CONTENT), 1) == b""
        assert file.read_at(len(CONTENT) + 9, 1) == b""
        assert file.read_at(5, 0) == b""
        file.close()
        file.close()

    def test_read_from_many_threads(self, filled: Transport) -> None:
        """A file has no position that threads could disturb."""
        file = filled.open_read("content")

        def read(start: int) -> bool:
            return all(file.read_at(at, 777) == CONTENT[at : at + 777] for at in range(start, len(CONTENT), 4096))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(read, range(8)))
        file.close()

    def test_closed_file_is_not_read(self, filled: Transport) -> None:
        """A bug of the caller shows as a failure, never as the bytes of another file."""
        file = filled.open_read("content")
        file.close()
        with pytest.raises(TransportFailed):
            file.read_at(0, 1)

    def test_stat(self, filled: Transport) -> None:
        """Kind and size; all times are by one clock."""
        found = filled.stat("content")
        assert (found.kind, found.size) == (EntryKind.FILE, len(CONTENT))
        assert abs(filled.stat("empty").modified - found.modified) < PATIENCE
        assert filled.stat("folder").kind is EntryKind.DIRECTORY
        assert filled.stat("").kind is EntryKind.DIRECTORY

    def test_list_is_sorted(self, filled: Transport) -> None:
        """The names alone, without their folder."""
        assert filled.list_directory("") == ["content", "empty", "folder"]
        assert filled.list_directory("folder") == ["deep", "inner", "naïve 文"]
        assert filled.list_directory("folder/deep") == []

    def test_exists(self, filled: Transport) -> None:
        """Files and folders alike; what lies below a file is not there."""
        assert filled.exists("content")
        assert filled.exists("folder/deep")
        assert filled.exists("")
        assert not filled.exists("absent")
        assert not filled.exists("content/below")

    def test_child_is_the_same_tree(self, filled: Transport) -> None:
        """A child shows what is below its place; nothing is looked up when it is made."""
        child = filled.child("folder")
        assert child.get("inner") == b"inner"
        assert child.child("deep").list_directory("") == []
        assert child.list_directory("") == filled.list_directory("folder")
        assert child.capabilities == filled.capabilities
        with pytest.raises(NoSuchFile):
            filled.child("absent/place").get("x")

    def test_absent_file(self, filled: Transport) -> None:
        """Every way to ask says `NoSuchFile` and names what was asked for."""
        for path in ("absent", "absent/below", "folder/absent"):
            for ask in (filled.get, filled.open_read, filled.stat, filled.list_directory):
                with pytest.raises(NoSuchFile) as caught:
                    ask(path)
                assert caught.value.path == path

    def test_errors_of_a_child_name_the_whole_path(self, filled: Transport) -> None:
        """So that a message says which file it was."""
        with pytest.raises(NoSuchFile) as caught:
            filled.child("folder").child("deep").get("absent")
        assert caught.value.path == "folder/deep/absent"

    def test_file_is_no_folder(self, filled: Transport) -> None:
        """And the other way round."""
        for ask in (filled.get, filled.stat, filled.open_read):
            with pytest.raises(NotADirectory):
                ask("content/below")
        with pytest.raises(NotADirectory):
            filled.list_directory("content")
        for open_file in (filled.get, filled.open_read):
            with pytest.raises(TransportFailed):
                open_file("folder")

    @pytest.mark.parametrize("path", NO_PATHS)
    def test_what_is_no_path(self, filled: Transport, path: str) -> None:
        """A bug of the caller, before anything is looked up."""
        for ask in (filled.get, filled.open_read, filled.stat, filled.list_directory, filled.child):
            with pytest.raises(ValueError):  # noqa: PT011 - each transport words it for itself
                ask(path)

    def test_describe_and_real_path(self, filled: Transport) -> None:
        """A message names the path; what is inside has a real path below that of the place."""
        assert "folder/inner" in filled.describe("folder/inner")
        assert filled.child("folder").describe("inner") == filled.describe("folder/inner")
        assert filled.child("folder").real_path("inner") == filled.real_path("folder/inner")
        assert filled.real_path("folder/not/there/yet").startswith(filled.real_path() + "/")

    def test_read_ranges(self, filled: Transport) -> None:
        """In the order asked, also where they overlap; short only at the end; none of none."""
        file = filled.open_read("content")
        ranges = [(70_000, 300), (0, 5), (2, 9), (len(CONTENT) - 3, 100), (len(CONTENT) + 9, 1), (5, 0)]
        assert file.read_ranges(ranges) == [CONTENT[at : at + size] for at, size in ranges]
        assert file.read_ranges([]) == []
        file.close()
        with pytest.raises(TransportFailed):
            file.read_ranges(ranges)

    def test_steps_that_read(self, filled: Transport) -> None:
        """Each holds what the call of one file gives; what is not there stops nothing."""
        content, absent, below = (
            steps.Get("content", size=len(CONTENT)),
            steps.Get("absent"),
            steps.Get("content/below"),
        )
        short, long, empty = (
            steps.Get("folder/inner", size=1),
            steps.Get("folder/inner", size=10_000),
            steps.Get("empty", size=0),
        )
        ranges, there, nothing = (
            steps.ReadRanges("content", [(9, 3), (0, 1)]),
            steps.GetStat("folder"),
            steps.GetStat("absent/x"),
        )
        names, none, file = steps.ListDirectory("folder"), steps.ListDirectory("absent"), steps.ListDirectory("content")
        asked: list[Step] = [content, absent, below, short, long, empty, ranges, there, nothing, names, none, file]
        filled.perform(asked)
        assert (content.result, content.content, absent.result, below.result) == (CONTENT, CONTENT, None, None)
        assert (short.content, long.content, empty.content) == (b"inner", b"inner", b"")
        assert ranges.result == [CONTENT[9:12], CONTENT[:1]]
        assert there.result is not None
        assert (there.result.kind, nothing.result) == (EntryKind.DIRECTORY, None)
        assert (names.result, none.result, file.result) == (filled.list_directory("folder"), None, None)
        with pytest.raises(NoSuchFile) as wrong:
            absent.content  # noqa: B018
        assert wrong.value.path == "absent"
        filled.perform([])

    def test_steps_of_a_child(self, filled: Transport) -> None:
        """Their paths count from the child."""
        inner, names = steps.Get("inner"), steps.ListDirectory("")
        filled.child("folder").perform([inner, names])
        assert (inner.content, names.result) == (b"inner", filled.list_directory("folder"))

    def test_a_step_that_cannot_read_raises(self, filled: Transport) -> None:
        """Ranges of what is not there, or is a folder; what came before it is there."""
        before, after = steps.Get("folder/inner"), steps.Get("content")
        with pytest.raises(NoSuchFile) as wrong:
            filled.perform([before, steps.ReadRanges("absent", [(0, 1)]), after])
        assert (before.content, wrong.value.path) == (b"inner", "absent")
        with pytest.raises(TransportError):
            filled.perform([steps.Get("folder")])
