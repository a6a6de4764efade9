"""transports.s3, versitygw: an S3 store against the promises of `transports.base`, and a repository in it. Where it
keeps a promise in another way, a test says how."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import History, check_whole, push, refs_of
from transport_publishing import Publishing, each_form
from transport_reads import CONTENT, PATIENCE
from transport_suite import TransportSuite
from versitygw import S3, environment

from smartserver.store.repository import PackRepository
from transports import steps
from transports.base import EntryKind, Step, Transport
from transports.errors import DirectoryNotEmpty, FileExists, NoSuchFile, TransportError
from transports.s3 import S3Transport

pytestmark = [pytest.mark.sockets, pytest.mark.needs("versitygw")]


class TestS3(TransportSuite):
    @pytest.fixture
    def transport(self, s3: S3) -> S3Transport:
        return S3Transport(s3.bucket(), "some/place")

    def test_written_content_is_read_back(self, transport: Transport) -> None:
        """In `incoming` at once; elsewhere when it is synced or closed, and then it takes no more."""
        own = transport.create("incoming/new")
        reader = transport.open_read("incoming/new")
        own.write(b"one ")
        own.write(memoryview(b"-two-")[1:-1])
        assert (reader.read_at(2, 9), reader.size()) == (b"e two", 7)
        own.write(CONTENT * 9)  # By now it is a file.
        assert reader.read_ranges([(len(CONTENT) + 7, 12), (0, 3)]) == [CONTENT[:12], b"one"]
        new = transport.create("new")
        new.write(bytearray(b"content"))
        assert not transport.exists("new")
        new.sync()
        assert transport.get("new") == b"content"
        with pytest.raises(TransportError):
            new.write(b"more")

    def test_create_takes_no_name_twice(self, transport: Transport) -> None:
        transport.put("taken", [b"old"])
        with pytest.raises(FileExists) as caught:
            transport.put("taken", [b"new"])
        assert (caught.value.path, transport.get("taken")) == ("taken", b"old")
        transport.create("incoming/taken")
        with pytest.raises(FileExists):
            transport.create("incoming/taken")

    def test_create_has_one_winner(self, transport: Transport) -> None:
        """Or several with the same content: the store may have been asked again."""
        start = threading.Barrier(8)

        def create(number: int) -> bool:
            start.wait(PATIENCE)
            try:
                transport.put("contended", [b"%d" % (number % 4)])
            except FileExists:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(create, range(8)))
        winner = int(transport.get("contended"))
        assert made[winner] or made[winner + 4]
        assert not any(done for number, done in enumerate(made) if number % 4 != winner)

    def test_create_needs_its_folder(self, transport: Transport) -> None:
        """It needs none."""
        transport.put("absent/new", [])
        assert (transport.list_directory(""), transport.stat("absent").kind) == (["absent"], EntryKind.DIRECTORY)

    def test_rename_between_folders(self, transport: Transport) -> None:
        """From `incoming` it is uploaded, in parts where it is large; else it is copied. Of files alone."""
        for size in (5, 6 << 20):
            transport.put("incoming/file", [bytes(size)])
            transport.rename("incoming/file", "incoming/other")
            assert not transport.exists("a")
            transport.rename("incoming/other", "a/moved")
            assert (transport.list_directory("incoming"), transport.list_directory("a")) == ([], ["moved"])
            transport.rename("a/moved", "b/again")
            assert (transport.list_directory(""), transport.get("b/again")) == (["b"], bytes(size))
        with pytest.raises(NoSuchFile):
            transport.rename("b", "c")

    def test_rename_names_what_is_missing(self, transport: Transport) -> None:
        for folder in ("", "incoming/"):
            with pytest.raises(NoSuchFile) as caught:
                transport.rename(f"{folder}absent", "x")
            assert caught.value.path == f"{folder}absent"

    def test_delete(self, transport: Transport) -> None:
        """S3 does not say whether something was there."""
        for path in ("file", "incoming/file"):
            transport.put(path, [b"old"])
            transport.delete(path)
            assert not transport.exists(path)
            transport.delete(path)

    def test_delete_is_for_files(self, transport: Transport) -> None:
        transport.put("folder/file", [])
        transport.delete("folder")
        assert transport.list_directory("folder") == ["file"]

    def test_folders(self, transport: Transport) -> None:
        """One is there while something lies in it, or where this process made it: for others it is not."""
        transport.make_directory("a/b")
        with pytest.raises(FileExists):
            transport.make_directory("a/b")
        assert transport.exists("a/b")
        transport.put("a/b/c", [])
        with pytest.raises(DirectoryNotEmpty):
            transport.remove_directory("a/b")
        transport.delete("a/b/c")
        transport.remove_directory("a/b")
        with pytest.raises(NoSuchFile):
            transport.remove_directory("a/b")
        assert transport.list_directory("") == []

    def test_sync_directory(self, transport: Transport) -> None:
        """Nothing is to be done."""
        transport.sync_directory("absent")

    def test_file_is_no_folder(self, filled: Transport) -> None:
        """Neither is anything else than missing."""
        for ask in (filled.get, filled.stat, filled.open_read):
            with pytest.raises(NoSuchFile):
                ask("content/below")
        with pytest.raises(NoSuchFile):
            filled.list_directory("content")
        with pytest.raises(NoSuchFile):
            filled.get("folder")

    def test_a_step_that_cannot_read_raises(self, filled: Transport) -> None:
        before, folder = steps.Get("folder/inner"), steps.Get("folder")
        with pytest.raises(NoSuchFile) as wrong:
            filled.perform([before, folder, steps.ReadRanges("absent", [(0, 1)]), steps.Put("never")])
        assert (before.content, folder.result, wrong.value.path) == (b"inner", None, "absent")
        assert not filled.exists("never")

    def test_the_first_step_that_fails_ends_it(self, transport: Transport) -> None:
        transport.perform([steps.MakeDirectory("there"), steps.Put("before", b"before")])
        wanted: list[tuple[Step, type[TransportError], str]] = [
            (steps.MakeDirectory("there"), FileExists, "there"),
            (steps.Put("before", b"taken"), FileExists, "before"),
            (steps.Rename("absent", "elsewhere"), NoSuchFile, "absent"),
            (steps.Publish("incoming/a", "before"), FileExists, "before"),
            (steps.Publish("absent", "elsewhere"), NoSuchFile, "absent"),
            (steps.ReadRanges("absent", [(0, 1)]), NoSuchFile, "absent"),
        ]
        for number, (step, error, path) in enumerate(wanted):
            done = [steps.Put(f"done{number}"), steps.Put("incoming/a", b"a")]
            with pytest.raises(error) as wrong:
                transport.perform([*done, step, steps.Put("never"), steps.Delete("before")])
            assert getattr(wrong.value, "path", None) == path
            assert transport.exists(f"done{number}")
            transport.delete("incoming/a")
        assert (transport.get("before"), transport.exists("never")) == (b"before", False)

    @each_form
    def test_publish_names_what_is_missing(self, place: Transport, publish: Publishing) -> None:
        """The source alone can be."""
        with pytest.raises(NoSuchFile) as caught:
            publish(place, "incoming/absent", "log/1")
        assert caught.value.path == "incoming/absent"
        assert place.list_directory("log") == []

    @each_form
    def test_withdraw(self, place: Transport, publish: Publishing) -> None:
        """The name is free at once. To withdraw what is gone succeeds."""
        for content in (b"a", b"b"):
            place.put("incoming/a", [content])
            publish(place, "incoming/a", "log/1")
            assert place.get_published("log/1") == content
            place.withdraw("log/1", "incoming/aside")
            with pytest.raises(NoSuchFile) as caught:
                place.get_published("log/1")
            assert caught.value.path == "log/1"
        place.withdraw("log/1", "incoming/aside")

    def test_names_of_any_kind(self, transport: Transport) -> None:
        names = sorted(['a"b', "a#b", "a%2fb", "a&b", "a+b", "a?b", "a[1]", "a\\b", "a b", "a~b", "ü"])
        for name in names:
            transport.put(name, [name.encode()])
        assert transport.list_directory("") == names
        assert [transport.get(name).decode() for name in names] == names
        with pytest.raises(TransportError):
            transport.put("a\nb", [])


def test_the_time_is_that_of_the_store(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a file of this process, whose clock may be wrong. It is asked once."""
    monkeypatch.setattr(time, "time", float)
    transport = S3Transport(s3.bucket())
    transport.put("there", [])
    for _ in range(2):
        transport.put("incoming/own", [])
        assert abs(transport.stat("incoming/own").modified - transport.stat("there").modified) < PATIENCE
        transport.delete("incoming/own")
    assert transport.calls == {"PUT": 2, "HEAD": 3, "DELETE": 1}


def test_calls_are_few(s3: S3) -> None:
    """Ranges near each other are one, and so are several looks at files of one folder."""
    transport = S3Transport(s3.bucket())
    transport.put("file", [CONTENT * 2])
    transport.calls.clear()
    ranges = [(0, 5), (9, 1), (300_000, 7), (600_000, 1), (3, 0), (300_002, 1)]
    read, looks = steps.ReadRanges("file", ranges), [steps.GetStat(name) for name in ("file", "b", "c", "incoming")]
    transport.perform([read, *looks])
    assert read.result == [(CONTENT * 2)[at : at + size] for at, size in ranges]
    assert [look.result and look.result.kind.value for look in looks] == ["file", None, None, "directory"]
    assert transport.calls == {"GET": 3, "LIST": 1}


def test_one_of_several_creates_a_repository(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """By two gateways. A folder is not exclusive in a bucket: the record and the format are."""
    bucket, history, start = s3.bucket(), History(), threading.Barrier(6)
    tips = history.line(6)
    history.body(tips)  # Which is made in one thread.

    def opened(gateway: int) -> PackRepository:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.gateways[gateway].endpoint)
        transport = S3Transport(bucket, "repositories")
        transport.list_directory("")  # It connects now.
        return PackRepository(transport, "team/project")

    def create(number: int) -> None:
        start.wait(PATIENCE)
        push(servers[number], history, tips[: number + 1], {b"refs/heads/%d" % number: tips[number]})

    servers = [opened(number % 2) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(create, range(6)))
    assert refs_of(opened(0)) == {b"refs/heads/%d" % number: tip for number, tip in enumerate(tips)}
    check_whole(servers[0], history)


RACER = """
import sys, time
from transports.errors import FileExists, NoSuchFile, TransportFailed
from transports.s3 import S3Transport
bucket, name, most = sys.argv[1:4]
transport = S3Transport(bucket)
for number in range(int(most)):
    own, path = f"{name} {number}".encode(), f"log/{number}"
    while True:
        transport.put("incoming/own", [own])
        try:
            transport.publish("incoming/own", path)
            found = own
        except (FileExists, TransportFailed):
            transport.delete("incoming/own")
            try:
                found = transport.get(path)
            except NoSuchFile:
                continue
            except TransportFailed:
                time.sleep(0.01)
                continue
        break
    print(number, found == own, flush=True)
"""
RACERS, RACES = 8, 150


def test_one_winner_by_two_gateways(s3: S3) -> None:
    """Eight processes race for each name on two gateways, one of which is killed and started again."""
    bucket, chance, path = s3.bucket(), random.Random(7), os.pathsep.join(filter(None, sys.path))

    def start(number: int) -> subprocess.Popen[str]:
        variables = os.environ | environment(s3.gateways[number % 2].endpoint) | {"PYTHONPATH": path}
        words = [sys.executable, "-c", RACER, bucket, f"racer{number}", str(RACES)]
        return subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)

    with contextlib.ExitStack() as ending:
        racers = [ending.enter_context(start(number)) for number in range(RACERS)]
        told = [list[str]() for _ in racers]
        for _ in range(3):
            assert racers[1].stdout is not None
            told[1] += [racers[1].stdout.readline() for _ in range(chance.randrange(1, 20))]
            s3.gateways[1].kill()
            s3.gateways[1].start()
        for lines, racer in zip(told, racers, strict=True):
            lines += racer.communicate()[0].splitlines(keepends=True)
    transport = S3Transport(bucket)
    for number in range(RACES):
        winners = [f"racer{racer}" for racer in range(RACERS) if told[racer][number].split() == [str(number), "True"]]
        assert transport.get(f"log/{number}").decode() == f"{winners[0]} {number}"
        assert len(winners) == 1, number
