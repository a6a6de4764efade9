from __future__ import annotations

import pytest

from netem.describe.http import describe_http


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
