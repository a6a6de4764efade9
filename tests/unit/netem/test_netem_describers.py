from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from netem.describe import describe, register
from netem.describe.base import DESCRIBERS, MOST_SHOWN
from netem.describe.http import describe_http
from netem.describe.pkt_line import describe_pkt_line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GET /items/3?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /items/3?all=1"),
        (b"PROPFIND /dav HTTP/1.0\n\n", "PROPFIND /dav"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 OK"),
        (b"HTTP/1.1 204 \r\n\r\n", "204"),
        (b"HTTP/1.0 304\r\n\r\n", "304"),
        (b"GET /items HTTP/2.0\r\n", ""),
        (b"GET /no-end-of-line HTTP/1.1", ""),
        (b"get /items HTTP/1.1\r\n", ""),
        (b"more of a body", ""),
        (b"", ""),
    ],
)
def test_request_and_status_lines(content: bytes, words: str) -> None:
    assert describe_http(content) == words


def line(text: bytes) -> bytes:
    return b"%04x" % (len(text) + 4) + text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            line(b"git-upload-pack /p.git\0host=localhost\0\0version=2\0"),
            "git-upload-pack /p.git host=localhost version=2",
        ),
        (line(b"version 2\n") + line(b"agent=git/2.43\n") + b"0000", "version 2 | agent=git/2.43 | flush"),
        (line(b"command=fetch") + b"0001" + line(b"done\n") + b"0000", "command=fetch | delimiter | done | ..."),
        (b"0002", "response end"),
        (b"0004", ""),
        (line(b"NAK\n") + line(b"\x02Counting objects\r") + line(b"\x01PACK..."), "NAK | progress | pack"),
        (line(b"\x03no such thing"), "error"),
        (line(b"old new ref\0caps") + b"0000PACK\x00\x00\x00\x02", "old new ref caps | flush | ..."),
        (line(b"want 12\n") + b"0032cut o", "want 12 | ..."),
        (b"0032cut o", ""),
        (b"PACK\x00\x00\x00\x02", ""),
        (b"00", ""),
        (b"", ""),
    ],
)
def test_lines(content: bytes, words: str) -> None:
    assert describe_pkt_line(content) == words


@pytest.fixture
def greeting() -> Iterator[None]:
    @register
    def describe_greeting(content: bytes) -> str:
        return content[5:].decode() if content.startswith(b"HELO ") else ""

    yield
    DESCRIBERS.remove(describe_greeting)


def test_the_first_that_knows_the_bytes_is_believed_in_one_line_that_a_terminal_survives(greeting: None) -> None:
    assert describe(b"HELO you") == "you"
    assert describe(b"GET / HTTP/1.1\r\n\r\n") == "GET /"
    assert describe(b"\x00\x01") == describe(b"") == ""
    assert describe(b"HELO a\n\x1b[31mb") == "a??[31mb"
    assert describe(b"HELO " + b"x" * 1000) == "x" * (MOST_SHOWN - 3) + "..."


@pytest.fixture
def failing() -> Iterator[list[bytes]]:
    seen: list[bytes] = []

    def describe_number(content: bytes) -> str:
        seen.append(content)
        return str(struct.unpack(">I", content)[0])

    DESCRIBERS.insert(0, describe_number)
    yield seen
    DESCRIBERS.remove(describe_number)


def test_one_that_fails_is_named_and_the_others_are_asked(failing: list[bytes], greeting: None) -> None:
    failed = "(describe_number failed: error('unpack requires a buffer of 4 bytes'))"
    assert describe(b"HELO you") == f"{failed}  you"
    assert describe(b"\x00\x01") == failed
    assert describe(b"\0\0\0\7") == "7"
    assert describe(b"") == ""
    assert b"" not in failing


def test_one_that_gives_no_text_fails() -> None:
    def describe_bytes(content: bytes) -> Any:
        return content

    DESCRIBERS.insert(0, describe_bytes)
    try:
        assert describe(b"\x01").startswith("(describe_bytes failed: ")
    finally:
        DESCRIBERS.remove(describe_bytes)
