from __future__ import annotations

import pytest

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
