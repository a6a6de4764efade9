"""transports.s3: what it says of URLs and errors, which calls it sends again, and in which order it reads records. What
it does on a store is tested in `conformance`."""

from __future__ import annotations

import errno
import io
import os
import random
import re
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from transports import s3_bucket
from transports.base import Step
from transports.errors import NoSpace, NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.s3 import S3Transport, from_url
from transports.steps import GetPublished, GetStat, ListDirectory, Query, SyncDirectory

SECRET = "do-not-tell-it"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my-bucket.x/a/b%20c/", "s3://my-bucket.x/a/b c"),
    ],
)
def test_urls(url: str, place: str) -> None:
    assert from_url(url).describe() == place


@pytest.mark.parametrize(
    "url", ["s3:", "s3://", "s3:///a", "s3://Bucket", "s3://bucket:80/a", "s3://bucket?a", "s3://b/a#b", "s3://b/a//b"]
)
def test_no_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"S3|path"):
        from_url(url)


def test_a_url_has_no_keys() -> None:
    with pytest.raises(ValueError, match="has no credentials") as wrong:
        from_url(f"s3://key:{SECRET}@bucket/a")
    assert SECRET not in str(wrong.value)


class _Refusing(BaseHTTPRequestHandler):
    """Refuses each request, or ends its connection."""

    answer: ClassVar[tuple[int, str] | None]
    asked: ClassVar[list[str]]

    def _refuse(self) -> None:
        self.asked.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, code = self.answer
        body = f"<Error><Code>{code}</Code><Message>No.</Message><AWSAccessKeyId>key {SECRET}</AWSAccessKeyId></Error>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_GET = do_PUT = do_HEAD = do_DELETE = _refuse

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Refusing]]:
    class Answers(_Refusing):
        asked: ClassVar[list[str]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Answers
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answer", [None, (503, "SlowDown"), (500, "InternalError")])
def test_a_publication_is_sent_once(
    refusing: type[_Refusing], answer: tuple[int, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other call is sent again. Neither is known to have failed."""
    monkeypatch.setattr(s3_bucket, "RETRIES", 0.3)
    refusing.answer = answer
    transport = S3Transport("bucket")
    transport.put("incoming/a", [b"a"])
    transport.put("incoming/b", [b"b"])
    with pytest.raises(TransportFailed):
        transport.publish("incoming/a", "log/1")
    assert (refusing.asked, transport.get("incoming/a")) == (["PUT"], b"a")
    with pytest.raises(TransportFailed):
        transport.rename("incoming/b", "packs/b")
    assert len(refusing.asked) > 2
    assert transport.get("incoming/b") == b"b"


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ((403, "RequestTimeTooSkewed"), TransportFailed, "the clock of this machine"),
        ((403, "AccessDenied"), PermissionDenied, "permission denied: 'a'"),
        ((403, "SignatureDoesNotMatch"), PermissionDenied, "refuses the keys"),
        ((404, "NoSuchBucket"), TransportFailed, "there is no such bucket"),
        ((404, "NoSuchKey"), NoSuchFile, "no such file: 'a'"),
        ((404, "UserNotFound"), TransportFailed, "UserNotFound: No."),
        ((404, ""), TransportFailed, "404 Not Found"),
        ((400, "Strange"), TransportFailed, "Strange: No."),
    ],
)
def test_what_is_told_of_a_refusal(
    refusing: type[_Refusing], answer: tuple[int, str], error: type[TransportError], text: str
) -> None:
    refusing.answer = answer
    transport = S3Transport("bucket")
    if error is not NoSuchFile:
        with pytest.raises(error):
            transport.list_directory("a")
    with pytest.raises(error) as wrong:
        transport.get("a")
    assert text in str(wrong.value)
    assert SECRET not in f"{wrong.value!r} {wrong.value} {transport!r} {transport.describe()}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_TIMEOUT", "soon", r'a variable AWS_\.\.\. has a wrong value: .*"soon"'),
        ("AWS_ENDPOINT_URL", "127.0.0.1:4444", "AWS_ENDPOINT_URL is not a URL"),
        ("AWS_ENDPOINT_URL", "", "AWS_ENDPOINT_URL is not a URL"),
    ],
)
def test_a_variable_with_a_wrong_value_is_named(
    refusing: type[_Refusing], monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TransportFailed, match=said):
        S3Transport("bucket").get("a")


def test_no_room_for_temporary_files_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda size: Full())
    with pytest.raises(NoSpace, match=re.escape(tempfile.gettempdir())):
        S3Transport("bucket").put("incoming/a", [b"a"])


def test_no_more_is_asked_of_a_store_that_fails(refusing: type[_Refusing]) -> None:
    refusing.answer = (400, "Strange")
    names, record = ListDirectory("log"), GetPublished("log/1")
    with pytest.raises(TransportFailed):
        S3Transport("bucket").perform([names, record])
    assert refusing.asked == ["GET"]


def test_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library would wait for ever."""
    monkeypatch.setattr(s3_bucket, "_user", os.getppid())
    with pytest.raises(TransportFailed, match="was used before this process was forked"):
        S3Transport("bucket").get("a")


class _Records(S3Transport):
    """A log. The reads of a flight are done in any order, and between two of them others publish and delete records."""

    def __init__(self, records: Iterable[int], chance: random.Random | None = None) -> None:
        super().__init__("bucket")
        self.records = sorted(records)
        self.flights: list[list[str]] = []
        self._chance = chance

    def _ask(self, steps: Sequence[Query[Any]]) -> dict[Query[Any], object]:
        if steps:
            self.flights.append([step.path for step in steps])
        order = list(steps) if self._chance is None else self._chance.sample(steps, len(steps))
        return {step: self._read_one(step) for step in order}

    def _read_one(self, step: Query[Any]) -> object:
        if self._chance is not None:
            for _ in range(self._chance.randrange(3)):
                self.records.append(self.records[-1] + 1)
            del self.records[: min(self._chance.choice((0, 0, 0, 0, 0, 0, 1, 4)), len(self.records) - 1)]
        return b"record" if step.path.rpartition("/")[2] in map(str, self.records) else None


def records(*numbers: int) -> list[GetPublished]:
    return [GetPublished(f"log/{number}") for number in numbers]


@pytest.mark.parametrize(
    ("there", "asked", "flights"),
    [
        ([1, 2, 3], records(4, 3), [["log/4"], ["log/3"]]),
        ([1, 2, 3, 4], records(4, 3), [["log/4"], ["log/3"]]),
        ([1, 2], records(3, 2, 1), [["log/3", "log/2"], ["log/1", "log/2"]]),
        ([1], records(3, 2, 1), [["log/3", "log/2"], ["log/1"]]),
        ([], records(3, 2, 1), [["log/3", "log/2"], ["log/1"]]),
        ([1, 2, 3, 4], records(4, 3, 2, 1), [["log/4", "log/3", "log/2", "log/1"]]),
        (
            [1, 2],
            [GetPublished("format"), ListDirectory("log"), *records(4, 3, 2, 1)],
            [["format", "log"], ["log/4", "log/3", "log/2", "log/1"], ["log/2"]],
        ),
        ([1], [*records(2, 1), SyncDirectory("log"), GetStat("packs/a")], [["log/2", "packs/a"], ["log/1"]]),
        ([], [ListDirectory("packs"), GetStat("format")], [["packs"], ["format"]]),
    ],
)
def test_what_is_read_together(there: list[int], asked: list[Step], flights: list[list[str]]) -> None:
    """A listing is read before what comes behind it, and a record after those above it that are missing."""
    log = _Records(there)
    log.perform(asked)
    assert log.flights == flights
    assert all(step.was_performed for step in asked if isinstance(step, Query))


def test_a_deleted_record_is_not_taken_for_one_to_come() -> None:
    """A reader that finds the record it stands on finds the newest too."""
    accepted = 0
    for seed in range(3000):
        chance = random.Random(seed)
        log = _Records(range(chance.randrange(1, 4), 12), chance)
        stands, newest = log.records[chance.randrange(3)], log.records[-1]
        asked = records(*range(newest + chance.randrange(1, 5), stands - 1, -1))
        log.perform(asked)
        there = [step.result is not None for step in reversed(asked)]
        if there[0]:
            accepted += 1
            assert (there.index(False) if False in there else len(there)) > newest - stands, f"seed {seed}"
    assert accepted > 100
