from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

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


def test_a_description_is_one_line_that_a_terminal_survives(greeting: None) -> None:
    assert describe(b"HELO a\n\x1b[31mb") == "a??[31mb"


def test_a_long_one_is_cut(greeting: None) -> None:
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
