from __future__ import annotations

from collections.abc import Iterator

import pytest

from netem.describe import describe, register
from netem.describe.base import DESCRIBERS, MOST_SHOWN


@pytest.fixture
def greeting() -> Iterator[None]:
    @register
    def describe_greeting(content: bytes) -> str:
        return content[5:].decode() if content.startswith(b"HELO ") else ""

    yield
    DESCRIBERS.remove(describe_greeting)


def test_the_first_that_knows_the_bytes_is_believed(greeting: None) -> None:
    assert describe(b"HELO you") == "you"
    assert describe(b"GET / HTTP/1.1\r\n\r\n") == "GET /"
    assert describe(b"\x00\x01") == describe(b"") == ""


def test_once_is_enough() -> None:
    before = list(DESCRIBERS)
    register(before[0])
    assert before == DESCRIBERS


def test_a_description_is_one_line_that_a_terminal_survives(greeting: None) -> None:
    assert describe(b"HELO a\n\x1b[31mb") == "a??[31mb"


def test_a_long_one_is_cut(greeting: None) -> None:
    assert describe(b"HELO " + b"x" * 1000) == "x" * (MOST_SHOWN - 3) + "..."


@pytest.mark.parametrize(
    "content",
    [
        b"GET /items/3 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"*2\r\n$3\r\nGET\r\n$6\r\nuser:1\r\n*1\r\n$4\r\nPING\r\n",
        b"$5\r\nhello\r\n",
        b"0032git-upload-pack /project.git\0host=127.0.0.1\0",
        b"0011command=fetch0001000fno-progress0000",
    ],
)
def test_no_describer_minds_where_bytes_are_cut_off_or_damaged(content: bytes) -> None:
    for size in range(len(content)):
        describe(content[:size])
        for wrong in (b"\x00", b"9", b"\xff"):
            describe(content[:size] + wrong + content[size + 1 :])
