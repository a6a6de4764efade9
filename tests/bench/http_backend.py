"""`git http-backend` behind Python's own HTTP server: `python -m bench.http_backend FOLDER PORT`."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 256 << 10


class Backend(BaseHTTPRequestHandler):
    """Runs git's CGI program for each request (http-backend(1))."""

    protocol_version = "HTTP/1.1"
    root = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        length = self.headers.get("Content-Length", "0")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": length,
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(length))
        pipe = subprocess.PIPE
        # Without a buffer, in which a part of the content would stay behind the fields.
        with subprocess.Popen(["git", "http-backend"], stdin=pipe, stdout=pipe, bufsize=0, env=environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(body)
            process.stdin.close()
            status, fields = b"200 OK", []
            while line := process.stdout.readline().strip():
                if line.lower().startswith(b"status:"):
                    status = line.partition(b":")[2].strip()
                else:
                    fields.append(line)
            fields.append(b"Transfer-Encoding: chunked")
            self.wfile.write(b"HTTP/1.1 " + status + b"\r\n" + b"\r\n".join(fields) + b"\r\n\r\n")
            while part := os.read(process.stdout.fileno(), PIECE):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # As it is called.
        """Nobody reads it."""


if __name__ == "__main__":
    Backend.root = sys.argv[1]
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Backend).serve_forever()
