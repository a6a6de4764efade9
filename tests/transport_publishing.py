"""The contract of every transport for files that are published, as tests to inherit: a part of `TransportSuite`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from transport_reads import CONTENT, PATIENCE

from transports import steps
from transports.base import Transport
from transports.errors import FileExists, NoSuchFile, NotADirectory, NotSupported

Publishing = Callable[[Transport, str, str], None]


def as_the_store_does(transport: Transport, source: str, target: str) -> None:
    """In the form that the store has."""
    transport.publish(source, target)


def as_a_folder(transport: Transport, source: str, target: str) -> None:
    """In the form that every store has."""
    transport.publish_as_folder(source, target)


FORMS = [as_the_store_does, as_a_folder]
each_form = pytest.mark.parametrize("publish", FORMS)


class PublishSuite:
    """The contract of a transport whose files are published."""

    THREADS: ClassVar[int] = 8

    @pytest.fixture
    def place(self, transport: Transport) -> Transport:
        """The same transport, with a folder to publish from and one to publish in."""
        transport.make_directory("incoming")
        transport.make_directory("log")
        return transport

    @each_form
    def test_publish(self, place: Transport, publish: Publishing) -> None:
        """The content is at the new name, and the old one is gone."""
        place.put("incoming/a", [CONTENT])
        publish(place, "incoming/a", "log/1")
        place.sync_directory("log")
        assert place.get_published("log/1") == place.child("log").get_published("1") == CONTENT
        with contextlib.closing(place.open_published("log/1")) as file:
            assert (file.size(), file.read_at(3, 5)) == (len(CONTENT), CONTENT[3:8])
        assert (place.list_directory("incoming"), place.list_directory("log")) == ([], ["1"])

    def test_publish_has_one_winner(self, place: Transport) -> None:
        """One of several threads wins, in both forms at once; the losers keep their sources."""
        for number in range(4):
            target, start = f"log/{number}", threading.Barrier(self.THREADS)

            def publish(thread: int, target: str = target, start: threading.Barrier = start) -> int | str:
                source = f"incoming/{target[4:]}.{thread}"
                place.put(source, [b"%d" % thread])
                start.wait(PATIENCE)
                try:
                    FORMS[thread % 2](place, source, target)
                except FileExists as taken:
                    return taken.path
                return thread

            with ThreadPoolExecutor(self.THREADS) as threads:
                told = list(threads.map(publish, range(self.THREADS)))
            winners = [each for each in told if each != target]
            assert [str(winner).encode() for winner in winners] == [place.get_published(target)]
            left = [f"{number}.{thread}" for thread in range(self.THREADS) if [thread] != winners]
            assert place.list_directory("incoming") == left
            for name in left:
                place.delete(f"incoming/{name}")

    @each_form
    def test_publish_takes_no_name_twice(self, place: Transport, publish: Publishing) -> None:
        """A file, a folder, and a published file in either form stay as they are."""
        place.put("log/file", [b"file"])
        place.make_directory("log/folder")
        place.put("log/folder/inner", [b"inner"])
        for number, form in enumerate(FORMS):
            place.put(f"incoming/{number}", [b"%d" % number])
            form(place, f"incoming/{number}", f"log/{number}")
        place.put("incoming/new", [b"new"])
        for taken in ("log/file", "log/folder", "log/0", "log/1"):
            with pytest.raises(FileExists) as caught:
                publish(place, "incoming/new", taken)
            assert caught.value.path == taken
        assert place.get("log/file") == b"file"
        assert place.get("log/folder/inner") == b"inner"
        assert (place.get_published("log/0"), place.get_published("log/1")) == (b"0", b"1")
        assert place.list_directory("incoming") == ["new"]

    @each_form
    def test_publish_names_what_is_missing(self, place: Transport, publish: Publishing) -> None:
        """The source or the target's folder; nothing is published or left."""
        place.put("incoming/a", [])
        place.put("file", [])
        wanted: list[tuple[str, str, type[NoSuchFile | NotADirectory], str]] = [
            ("incoming/absent", "log/1", NoSuchFile, "incoming/absent"),
            ("incoming/a", "absent/1", NoSuchFile, "absent/1"),
            ("incoming/a", "file/1", NotADirectory, "file/1"),
        ]
        for source, target, error, path in wanted:
            with pytest.raises(error) as caught:
                publish(place, source, target)
            assert caught.value.wire_arguments() == {"path": path}
        assert (place.list_directory("incoming"), place.list_directory("log")) == (["a"], [])

    @each_form
    def test_an_empty_folder_is_nothing(self, place: Transport, publish: Publishing) -> None:
        """It is left by a loss of power where folders are not synced."""
        place.make_directory("log/1")
        place.put("incoming/a", [b"a"])
        read = steps.GetPublished("log/1")
        place.perform([read])
        assert read.result is None
        publish(place, "incoming/a", "log/1")
        assert place.get_published("log/1") == b"a"
        place.make_directory("log/2")
        place.withdraw("log/2", "incoming/aside")
        assert (place.list_directory("incoming"), place.list_directory("log")) == ([], ["1"])

    @each_form
    def test_withdraw(self, place: Transport, publish: Publishing) -> None:
        """The name is free at once, for either form."""
        for number, form in enumerate(FORMS):
            place.put("incoming/a", [b"%d" % number])
            publish(place, "incoming/a", "log/1")
            place.withdraw("log/1", "incoming/aside")
            with pytest.raises(NoSuchFile) as caught:
                place.get_published("log/1")
            assert caught.value.path == "log/1"
            assert (place.list_directory("incoming"), place.list_directory("log")) == ([], [])
            place.put("incoming/b", [b"b"])
            form(place, "incoming/b", "log/1")
            assert place.get_published("log/1") == b"b"
            place.withdraw("log/1", "incoming/aside")
        with pytest.raises(NoSuchFile) as caught:
            place.withdraw("log/1", "incoming/aside")
        assert caught.value.path == "log/1"

    def test_steps_that_publish(self, place: Transport) -> None:
        """Each sees what those before it did."""
        before, after, gone = (steps.GetPublished("log/1") for _ in range(3))
        source = steps.GetPublished("incoming/a")
        place.perform(
            [
                before,
                steps.Put("incoming/a", CONTENT),
                source,
                steps.Publish("incoming/a", "log/1"),
                after,
                steps.SyncDirectory("log"),
                steps.Withdraw("log/1", "incoming/aside"),
                gone,
            ]
        )
        assert (before.result, source.result, after.result, gone.result) == (None, CONTENT, CONTENT, None)
        assert (place.list_directory("incoming"), place.list_directory("log")) == ([], [])

    def test_link(self, place: Transport) -> None:
        """A second name of the same file, where the store has links."""
        place.put("incoming/a", [b"a"])
        place.put("log/taken", [b"taken"])
        try:
            place.link("incoming/a", "log/1")
        except NotSupported:
            assert place.list_directory("log") == ["taken"]
            return
        assert place.get("incoming/a") == place.get("log/1") == b"a"
        for source, target, error in (
            ("incoming/a", "log/taken", FileExists),
            ("incoming/absent", "log/2", NoSuchFile),
            ("incoming/a", "absent/2", NoSuchFile),
        ):
            with pytest.raises(error) as caught:
                place.link(source, target)
            missing = source if source == "incoming/absent" else target
            assert caught.value.wire_arguments() == {"path": missing}
        assert place.get("log/taken") == b"taken"
