"""smartserver.gateway.http_channel, http_request, body: requests of hostile clients on the port for stock git."""

from __future__ import annotations

import gzip
import io
import os
import socket
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import GatewayServer, Git, new_repository
from processes import peak

pytestmark = pytest.mark.sockets

PATIENCE = 60.0

RULES = """
[[rules]]
who = ["anonymous"]
path = "project"
may = "read"
"""

FETCH = "Content-Type: application/x-git-upload-pack-request\r\n"
PUSH = "Content-Type: application/x-git-receive-pack-request\r\n"


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    return new_repository(tmp_path_factory.mktemp("user") / "work")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, git: Git) -> Iterator[GatewayServer]:
    """A server on which everybody may read one repository, and nobody may write."""
    folder = tmp_path_factory.mktemp("gateway")
    git("push", "-q", "--mirror", str(folder / "bare"), status=None)
    with GatewayServer(folder) as server:
        git("push", "-q", server.url(), "main")
    (folder / "access.toml").write_text(RULES)
    with GatewayServer(folder, "--access", str(folder / "access.toml"), anonymous="") as server:
        yield server


class Answer:
    """The parsed answer to a request."""

    def __init__(self, content: bytes) -> None:
        head, _, self.body = content.partition(b"\r\n\r\n")
        first, *fields = head.split(b"\r\n")
        self.status = int(first.split(b" ")[1]) if first else 0
        self.fields = dict(field.lower().split(b": ", 1) for field in fields)


def ask(server: GatewayServer, *parts: bytes) -> Answer:
    """Send bytes, and read to the end."""
    with socket.create_connection(("127.0.0.1", server.http_port), PATIENCE) as connection:
        for part in parts:
            connection.sendall(part)
        content = b""
        while part := connection.recv(65536):
            content += part
        return Answer(content)


def request(method: str, target: str, fields: str = "", body: bytes = b"") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body and "Transfer-Encoding" not in fields else ""
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}{length}\r\n".encode() + body


def line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


LS_REFS = line("command=ls-refs\n") + b"0001" + line("peel\n") + b"0000"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/project/info/refs?service=git-upload-pack", 200),
        ("/project/info/refs?service=git-upload-pack&x=y", 403),
        ("/project/info/refs", 403),
        ("/project/HEAD", 404),
        ("/", 404),
        ("/?cmd=capabilities", 404),
        ("/../etc/passwd/info/refs?service=git-upload-pack", 404),
        ("/project/../project/info/refs?service=git-upload-pack", 404),
        ("/%2e%2e/info/refs?service=git-upload-pack", 404),
        ("/a%00b/info/refs?service=git-upload-pack", 404),
        ("/a%5cb/info/refs?service=git-upload-pack", 404),
        ("/a//b/info/refs?service=git-upload-pack", 404),
        ("/%ff/info/refs?service=git-upload-pack", 404),
        ("/" + "a" * 9000 + "/info/refs?service=git-upload-pack", 414),
        ("http://elsewhere/project/info/refs?service=git-upload-pack", 400),
        ("/project/packs/info/refs?service=git-upload-pack", 404),
        ("/hidden/info/refs?service=git-upload-pack", 403),
    ],
)
def test_paths(server: GatewayServer, target: str, status: int) -> None:
    assert ask(server, request("GET", target)).status == status


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"0\r\n\r\n"),
        ("Content-Length: 4\r\nContent-Length: 5\r\n", b"00000"),
        ("Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
        ("Content-Length: +4\r\n", b"0000"),
        ("Content-Length: 4, 4\r\n", b"0000"),
        ("Transfer-Encoding: chunked\r\n", b"4;x\n0000\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"0x4\r\n0000\r\n0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    ],
)
def test_no_request_is_smuggled(server: GatewayServer, fields: str, body: bytes) -> None:
    """A request that a proxy may parse differently is refused, and its connection is closed."""
    head = f"POST /project/git-upload-pack HTTP/1.1\r\nHost: x\r\n{FETCH}{fields}\r\n".encode()
    smuggled = b"GET /project/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = ask(server, head + body + smuggled)
    assert answer.status in (0, 400)
    assert b"HTTP/1.1 200" not in answer.body


def test_bodies_in_every_encoding(server: GatewayServer) -> None:
    fields = FETCH + "Git-Protocol: version=2\r\n"
    chunked = b"".join(b"1\r\n%c\r\n" % each for each in LS_REFS) + b"0\r\n\r\n"
    packed = gzip.compress(LS_REFS)
    answers = [
        ask(server, request("POST", "/project/git-upload-pack", fields, LS_REFS)),
        ask(server, request("POST", "/project/git-upload-pack", fields + "Transfer-Encoding: chunked\r\n", chunked)),
        ask(server, request("POST", "/project/git-upload-pack", fields + "Content-Encoding: gzip\r\n", packed)),
    ]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert b"refs/heads/main" in answers[0].body


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no gzip", 400),
        (gzip.compress(LS_REFS)[:-9], 400),
        (gzip.compress(LS_REFS) + b"more", 400),
        (gzip.compress(b"\0" * (65 << 20)), 413),
    ],
)
def test_bodies_in_gzip_that_are_none(server: GatewayServer, body: bytes, status: int) -> None:
    answer = ask(server, request("POST", "/project/git-upload-pack", FETCH + "Content-Encoding: gzip\r\n", body))
    assert answer.status == status


def test_a_body_that_nobody_wants_is_told_before_it_comes(server: GatewayServer) -> None:
    fields = f"{PUSH}Expect: 100-continue\r\nContent-Length: 1000000\r\n"
    answer = ask(server, request("POST", "/project/git-receive-pack", fields))
    assert answer.status == 403
    assert b"allow anonymous only read here" in answer.body


def test_a_client_that_waits_is_told_to_go_on(server: GatewayServer) -> None:
    fields = f"{FETCH}Git-Protocol: version=2\r\nExpect: 100-continue\r\nContent-Length: {len(LS_REFS)}\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port), PATIENCE) as connection:
        connection.sendall(request("POST", "/project/git-upload-pack", fields))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(LS_REFS)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


def most_memory(server: GatewayServer) -> int:
    assert server.process is not None
    return peak(server.process.pid)


def test_a_body_that_nobody_wants_is_in_no_file_and_no_memory(server: GatewayServer) -> None:
    before = most_memory(server)
    body = os.urandom(1 << 20)
    head = f"POST /project/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{PUSH}"
    head += f"Content-Length: {len(body) * 60}\r\n\r\n"
    answer = ask(server, head.encode(), *[body] * 60)
    assert answer.status == 403
    assert most_memory(server) - before < 16 << 20


def test_a_large_body_is_in_no_memory(tmp_path: Path) -> None:
    """In the body of the push, garbage follows the part that git understands."""
    with GatewayServer(tmp_path) as server:
        ask(server, request("GET", "/"))
        before = most_memory(server)
        body = os.urandom(1 << 20)
        head = f"POST /new/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{PUSH}"
        first = line(f"{'0' * 40} {'1' * 40} refs/heads/main\0report-status") + b"0000"
        head += f"Content-Length: {len(first) + len(body) * 200}\r\n\r\n"
        answer = ask(server, head.encode() + first, *[body] * 200)
        assert b"ng refs/heads/main unpacker error" in answer.body
        assert most_memory(server) - before < 48 << 20
        assert not list(tmp_path.glob("cache/git/quarantine/*"))


@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [("Content-Length: {more}", b"", b""), ("Transfer-Encoding: chunked", b"{size:x}\r\n", b"\r\n")],
)
def test_a_push_that_did_not_come_whole(tmp_path: Path, git: Git, fields: str, before: bytes, after: bytes) -> None:
    """A push is dropped if its body ends early, even if its pack is complete."""
    command = ["git", "pack-objects", "--all", "--stdout", "-q"]
    pack = subprocess.run(command, cwd=git.folder, input=b"", stdout=subprocess.PIPE, check=True).stdout
    tip = git("rev-parse", "main").strip()
    body = line(f"{'0' * 40} {tip} refs/heads/main\0report-status") + b"0000" + pack
    head = f"POST /new/git-receive-pack HTTP/1.1\r\nHost: x\r\n{PUSH}{fields}\r\n\r\n"
    sent = head.format(more=len(body) + 1).encode() + before.decode().format(size=len(body)).encode() + body + after
    with GatewayServer(tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.http_port), PATIENCE) as connection:
            connection.sendall(sent)
        for _ in range(1000):
            ask(server, request("GET", "/"))
            if "outcome=lost" in server.log.read_text():
                break
        assert "outcome=lost" in server.log.read_text()
        assert not list(server.root.iterdir())
        assert b"ok refs/heads/main" in ask(server, request("POST", "/new/git-receive-pack", PUSH, body)).body


def bomb() -> bytes:
    """Return a pack of 200 bytes with one blob that claims 100 GB."""
    size, head = 100 << 30, bytearray()
    byte = (3 << 4) | (size & 15)
    size >>= 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    out = io.BytesIO(b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big"))
    out.seek(0, io.SEEK_END)
    out.write(bytes(head) + zlib.compress(b"\0" * 1000) + b"\0" * 20)
    return out.getvalue()


def test_a_pack_that_claims_to_be_huge_and_commands_that_are_none(tmp_path: Path) -> None:
    """`tests/unit/gateway/test_gateway_routes.py` has the ways in which commands are none."""
    with GatewayServer(tmp_path) as server:
        for body in (b"", line("nonsense")):
            assert ask(server, request("POST", "/new/git-receive-pack", PUSH, body)).status == 400
        first = line(f"{'0' * 40} {'1' * 40} refs/heads/main\0report-status") + b"0000"
        answer = ask(server, request("POST", "/new/git-receive-pack", PUSH, first + bomb()))
        assert b"ng refs/heads/main unpacker error" in answer.body
        assert not list(tmp_path.glob("root/*"))
