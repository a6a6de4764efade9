"""gateway.routes, receive, ssh, places, updates, body: what a client asks, as bytes, and what waits for what."""

from __future__ import annotations

import base64
import errno
import io
import logging
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dialogs import SteppedExecutor

from smartserver.gateway.body import HIGH, SMALL, BadBody, RequestBody
from smartserver.gateway.gateway import Gateway, Visitor
from smartserver.gateway.git_command import GitCommand, Service, git_command
from smartserver.gateway.git_programs import protocol_of
from smartserver.gateway.pkt_line import FLUSH, BadRequest, band, error_line, line, read_line, read_lines
from smartserver.gateway.places import Places
from smartserver.gateway.receive import Command, read_request
from smartserver.gateway.routes import NoRoute, Route, client_behind, route, token_of
from smartserver.gateway.ssh import FAILED, LaterExecutor, serve
from smartserver.gateway.updates import Updates
from smartserver.server.access import invoking_user
from smartserver.server.executor import NOBODY
from smartserver.vcs.base import VcsError

OLD, NEW = b"1" * 20, b"\x22" * 20
ABSENT = b"0" * 40


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        (b"GET", b"/a/b/info/refs?service=git-upload-pack", Route("a/b", Service.UPLOAD_PACK, True)),
        (b"GET", b"/info/refs?service=git-receive-pack", Route("", Service.RECEIVE_PACK, True)),
        (b"POST", b"/a%20b/git-receive-pack", Route("a b", Service.RECEIVE_PACK, False)),
        (b"POST", b"/%252e/git-upload-pack", Route("%2e", Service.UPLOAD_PACK, False)),
        (b"POST", b"/a/info/refs?service=git-upload-pack", 405),
        (b"HEAD", b"/a/info/refs?service=git-upload-pack", 405),
        (b"GET", b"/a/git-upload-pack", 405),
        (b"GET", b"/a/info/refs?service=git-upload-archive", 403),
        (b"GET", b"/a/objects/info/packs", 404),
        (b"GET", b"*", 400),
    ],
)
def test_routes(method: bytes, target: bytes, expected: Route | int) -> None:
    try:
        found: Route | int = route(method, target)
    except NoRoute as wrong:
        found = wrong.status
    assert found == expected


@pytest.mark.parametrize(("said", "token"), [("anna:secret", b"secret"), ("secret:", b"secret"), (":", None)])
def test_the_token_is_the_password_or_the_name(said: str, token: bytes | None) -> None:
    extras = token_of(b"Basic " + base64.b64encode(said.encode()))
    assert [bytes(each)[1:] for each in extras.values()] == ([] if token is None else [token])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"Bearer hpss_x", "^expected `Authorization: Basic`, whose password is the token; `Bearer` is not supported$"),
        (b"hpss_x", "^expected `Authorization: Basic`, whose password is the token"),
        (b"Basic !", "NAME:TOKEN in base64"),
        (b"Basic /w==", "NAME:TOKEN in base64"),
    ],
)
def test_other_credentials(said: bytes, why: str) -> None:
    with pytest.raises(NoRoute, match=why):
        token_of(said)


@pytest.mark.parametrize(
    ("said", "address"),
    [(b"192.0.2.1", "192.0.2.1"), (b"evil, 2001:db8::1", "2001:db8::1"), (b"evil", ""), (b"", ""), (b"1.1.1.1,", "")],
)
def test_the_client_behind_a_proxy(said: bytes, address: str) -> None:
    assert client_behind(said) == address


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("git-upload-pack '/a b'", GitCommand(Service.UPLOAD_PACK, "a b")),
        ("git-receive-pack 'project'", GitCommand(Service.RECEIVE_PACK, "project")),
        ("git upload-pack '/~/project'", GitCommand(Service.UPLOAD_PACK, "project")),
        ("git-upload-archive 'x'", None),
        ("git-upload-pack 'x' 'y'", None),
        ("smartserver serve --stdio x", None),
        ("git-upload-pack 'x", None),
        ("", None),
    ],
)
def test_commands_of_ssh(original: str, expected: GitCommand | None) -> None:
    assert git_command(original) == expected


def test_protocol_versions() -> None:
    assert [protocol_of(each) for each in ("version=2", "x:version=1", "version=3", "version=2;x", "")] == [
        "version=2", "version=1", "", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"00", b"0003", b"xxxx", b"+005a", b"0008abc", b"fff5", b" 004"])
def test_lines_that_are_none(content: bytes) -> None:
    with pytest.raises(BadRequest):
        read_line(io.BytesIO(content).read)


def test_lines() -> None:
    assert read_lines(io.BytesIO(line(b"a") + line(b"") + FLUSH + b"rest").read, 10) == [b"a", b""]
    for lines in (line(b"a" * 7), line(b"") * 3):
        with pytest.raises(BadRequest):
            read_lines(io.BytesIO(lines + FLUSH).read, 10)
    packets = list(band(1, b"x" * 100_000))
    assert [len(each) for each in packets] == [65520, 100_000 - 65515 + 5]


def test_a_push_is_read_up_to_its_pack() -> None:
    first = OLD.hex().encode() + b" " + NEW.hex().encode() + b" refs/heads/a"
    content = line(b"shallow " + b"3" * 40)
    content += line(first + b"\0 report-status push-options atomic") + line(ABSENT + b" " + ABSENT + b" refs/heads/b\n")
    content += FLUSH + line(b"ci.skip") + FLUSH + b"PACK"
    stream = io.BytesIO(content)
    request = read_request(stream.read)
    assert request.commands == [Command(OLD, NEW, b"refs/heads/a"), Command(b"", b"", b"refs/heads/b")]
    assert b"atomic" in request.capabilities
    assert request.options == [b"ci.skip"]
    assert request.has_pack
    assert request.is_shallow
    assert stream.read() == b"PACK"


@pytest.mark.parametrize(
    "texts",
    [
        [b"nonsense"],
        [b"x" * 40 + b" " + ABSENT + b" refs/heads/a"],
        [ABSENT + b" " + ABSENT],
        [b"0" * 20 + b" 00 refs/heads/a"],
        [ABSENT + b" " + NEW.hex().encode() + b" refs/heads/a"] * 2,
    ],
)
def test_commands_that_are_none(texts: list[bytes]) -> None:
    with pytest.raises(BadRequest):
        read_request(io.BytesIO(b"".join(map(line, texts)) + FLUSH).read)


def test_words_of_git_make_no_line_of_their_own_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def failed(*_: object) -> None:
        raise VcsError("one\ntwo")

    site: Any = None
    gateway = Gateway(site, str(tmp_path), LaterExecutor())
    monkeypatch.setattr(gateway, "may_fetch", failed)
    caplog.set_level(logging.INFO, "smartserver")
    visitor = Visitor(invoking_user("anna"), {}, "a test", "ssh")
    assert serve(gateway, visitor, GitCommand(Service.UPLOAD_PACK, "project"), "") == FAILED
    assert caplog.messages == [f"a test: {Service.UPLOAD_PACK}: one?two"]
    assert capfdbinary.readouterr().out == error_line("one?two")


def test_the_address_with_the_fewest_programs_comes_first() -> None:
    places, begun = Places(2), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        places.take(name[0], partial(begun.append, name))
    assert begun == ["a1", "a2"]
    places.leave("a")
    assert begun == ["a1", "a2", "b1"]
    places.leave("b")
    assert begun == ["a1", "a2", "b1", "a3"]
    places.leave("a")
    places.leave("a")
    places.take("c", partial(begun.append, "c1"))
    assert begun[-1] == "c1"


def test_a_lost_request_waits_for_no_update() -> None:
    executor, done = SteppedExecutor(), list[str]()

    def ended(name: str) -> Any:
        return lambda _: done.append(name)

    gateway: Any = SimpleNamespace(executor=executor, bring=lambda path: SimpleNamespace(close=lambda: None))
    updates, lost = Updates(gateway), ended("lost")
    for each in (ended("first"), lost, ended("second")):
        updates.bring("project", NOBODY, each)
    updates.forget("project", lost)
    updates.forget("other", lost)
    executor.run_all()
    assert done == ["first", "second"]
    assert not updates._waiting


def body_in(folder: Path) -> RequestBody:
    return RequestBody(str(folder), SteppedExecutor(), NOBODY, lambda more: None, gzip=False, most=1000)


def test_a_client_that_goes_while_its_body_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor would be that of another file by the next write."""
    body = body_in(tmp_path)
    body.add(b"one")
    body.add(b"two")
    original = RequestBody._append

    def append(self: RequestBody, content: bytes) -> None:
        if content == b"two":
            self.abandon()
        original(self, content)

    monkeypatch.setattr(RequestBody, "_append", append)
    with open(body.open(), "rb") as file:
        assert file.read() == b"onetwo"
    body.abandon()


def test_a_client_that_went_before(tmp_path: Path) -> None:
    body = body_in(tmp_path)
    body.add(b"one")
    body.abandon()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadBody):
        body.open()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_is_full_stops_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer follows the rest of the body, which must come for that."""
    reads: list[bool] = []
    executor = SteppedExecutor()
    body = RequestBody(str(tmp_path), executor, NOBODY, reads.append, gzip=False, most=HIGH * 9)

    def append(self: RequestBody, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RequestBody, "_append", append)
    for size in (SMALL + 1, HIGH, HIGH):
        body.add(bytes(size))
    executor.run_all()
    assert reads == [False, True]
    body.add(b"more")
    with pytest.raises(OSError, match="full"):
        body.open()
