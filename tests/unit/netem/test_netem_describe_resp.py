from __future__ import annotations

import pytest

from netem.describe.resp import describe_resp

GET = b"*2\r\n$3\r\nGET\r\n$6\r\nuser:1\r\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GET, "GET user:1"),
        (GET + b"*1\r\n$4\r\nPING\r\n", "GET user:1; PING"),
        (GET * 9, "GET user:1; GET user:1; GET user:1; ..."),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n", "SET k a\r\nb"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$90\r\ncut off", "SET k cut off"),
        (b"*3\r\n$3\r\nSET\r\n$1", "SET"),
        (b"+OK\r\n", "+OK"),
        (b"-ERR unknown command\r\n", "-ERR unknown command"),
        (b":42\r\n", ":42"),
        (b"_\r\n", "_"),
        (b"$5\r\nhello\r\n", "5 bytes"),
        (b"$-1\r\n", "nothing"),
        (b"*0\r\n", "array of 0"),
        (b"*-1\r\n", "array of -1"),
        (b"*2\r\n:1\r\n:2\r\n", "array of 2"),
        (b"%1\r\n+a\r\n:1\r\n", "array of 1"),
        (b"*2", ""),
        (b"GET user:1\r\n", ""),
        (b"", ""),
    ],
)
def test_commands_and_replies(content: bytes, words: str) -> None:
    assert describe_resp(content) == words
