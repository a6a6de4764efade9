"""The web server of the git suite: our gateway, in place of Apache with `git http-backend`.

A script of git starts and stops it as it does with Apache. It serves the repositories that the script makes in its
document root. Before each request the repository's refs and HEAD are copied to the server, with the objects they need
(git_bridge.py). Then the gateway answers the request. After a push the refs that changed are copied back. So the
gateway answers each request of stock git, and the script may look into the repository before and after.

Paths below `/smart/` are open to everybody. Those that Apache protects by a password have a folder of their own on the
server, where a user with a token has rights; the password of the scripts stands for the token. All else that Apache is
configured to do (redirects, headers, CGI scripts) does not happen: such a path is not found.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from git_bridge import Bridge, name_of, outside, repository_of

from smartserver.vcs.base import VcsError
from transports.errors import CodedError

AREAS = {"": "open", "auth": "closed", "auth-fetch": "closed", "auth-push": "read", "half-auth-complete": "read"}
"""The folders of the server for the locations of Apache's configuration: who may use them is in `RULES`."""

USER = "user"

RULES = f"""
[[rules]]
who = ["{USER}"]
path = "**"
may = "admin"

[[rules]]
who = ["anonymous"]
path = "open/**"
may = "admin"

[[rules]]
who = ["anonymous"]
path = "read/**"
may = "read"
"""
"""The access file of the server."""

CREDENTIALS = b"Basic " + base64.b64encode(b"user@host:pass@host")
"""The user and the password of the scripts (lib-httpd/passwd)."""

TARGET = re.compile(
    r"/(?:(auth|auth-fetch|auth-push|half-auth-complete)/)?smart/(.*?)(/(?:info/refs|git-[a-z]+-pack)(?:\?.*)?)"
)

KEPT = ("accept", "accept-encoding", "accept-language", "content-encoding", "content-type", "git-protocol", "pragma")
"""Fields of a request that are handed on as they are."""

OF_HOP = ("connection", "content-length", "date", "keep-alive", "server", "transfer-encoding")
"""Fields of an answer that are this server's own."""


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    reason: str
    fields: list[tuple[str, str]]
    body: bytes


def plain(status: int, reason: str, text: str) -> Answer:
    """An answer of this server's own."""
    return Answer(status, reason, [("Content-Type", "text/plain")], f"{text}\n".encode())


class Gateway:
    """The gateway, and the repositories of a script that it serves."""

    def __init__(self, document_root: Path) -> None:
        self._document_root = document_root
        self._work = Path(os.environ["HPSS_BRIDGE_WORK"])
        self._store, gateway = os.environ["HPSS_GATEWAY"].split(" ")
        self._gateway = urlsplit(gateway).netloc
        token = os.environ["HPSS_TOKEN"]
        self._token = b"Basic " + base64.b64encode(f"{USER}:{token}".encode())
        self._environment = outside(os.environ) | {
            "SMARTSERVER_TOKEN": f"{urlsplit(self._store).netloc}={token}",
            "XDG_CACHE_HOME": str(self._work / "cache"),
        }
        self._one_at_a_time = threading.Lock()

    def answer(self, method: str, target: str, fields: dict[str, str], body: bytes, *, chunked: bool) -> Answer:
        """The gateway's answer."""
        found = TARGET.fullmatch(target)
        folder = None if found is None else repository_of(str(self._document_root / unquote(found[2])), "")
        if found is None or folder is None:
            return plain(404, "Not Found", f"{target} is not served here")
        path = f"{AREAS[found[1] or '']}/{self._work.name}/{name_of(folder)}"
        with self._copied(folder, path, pushes=found[3] == "/git-receive-pack"):
            return self._asked(method, f"/{path}{found[3]}", fields, body, chunked=chunked)

    @contextmanager
    def _copied(self, folder: Path, path: str, *, pushes: bool) -> Iterator[None]:
        bridge = Bridge(
            folder,
            f"{self._store}/{path}",
            Path(os.environ["HPSS_BRIDGE_ROOT"]),
            self._work / "bridge",
            self._environment,
        )
        with self._one_at_a_time:
            before = bridge.copy_in()
            yield
            if pushes:
                bridge.copy_out(before)

    def _asked(self, method: str, target: str, fields: dict[str, str], body: bytes, *, chunked: bool) -> Answer:
        sent = {name: fields[name] for name in KEPT if name in fields}
        credentials = fields.get("authorization", "").encode()
        if credentials:
            sent["authorization"] = (self._token if credentials == CREDENTIALS else credentials).decode()
        if chunked:
            sent["transfer-encoding"] = "chunked"
        connection = HTTPConnection(self._gateway)
        try:
            connection.request(method, target, iter([body]) if chunked else body, sent, encode_chunked=chunked)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in OF_HOP]
            return Answer(answer.status, answer.reason, kept, answer.read())
        finally:
            connection.close()


class Server(ThreadingHTTPServer):
    """The web server."""

    daemon_threads = True

    def __init__(self, port: int, root: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.gateway = Gateway(root / "www")
        self._log = root / "access.log"

    def note(self, line: str) -> None:
        """Write a line into the access log, as Apache does."""
        with open(self._log, "a") as log:
            log.write(line)
        with open(os.environ["HPSS_BRIDGE_LOG"], "ab", buffering=0) as suite:
            suite.write(b"\n# bridged\n")


class Handler(BaseHTTPRequestHandler):
    """A connection of a client."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Answer a request."""
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("content-length", "0")))
        fields = {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = self.server.gateway.answer(self.command, self.path, fields, body, chunked=chunked)
        except (VcsError, CodedError, OSError, subprocess.CalledProcessError) as wrong:
            answer = plain(500, "Internal Server Error", f"bridge: {wrong}")
        size = len(answer.body) or "-"
        self.server.note(f'127.0.0.1 - - [now] "{self.requestline}" {answer.status} {size}\n')
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_GET

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def log_message(self, *_: object, **__: object) -> None:
        """Write nothing more: `note` has the log."""


def main() -> int:
    """Obey Apache's options `-d ROOT -c "Listen HOST:PORT" -k start|stop`; the exit status."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    root = Path(options["-d"])
    process = root / "httpd.pid"
    if sys.argv[-1] == "stop":
        os.kill(int(process.read_text()), signal.SIGTERM)
        return 0
    server = Server(int(options["-c"].rpartition(":")[2]), root)
    if child := os.fork():
        process.write_text(f"{child}\n")
        return 0
    with open(root / "error.log", "ab") as log, open(os.devnull, "rb") as nothing:
        for number, file in enumerate((nothing, log, log)):
            os.dup2(file.fileno(), number)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
