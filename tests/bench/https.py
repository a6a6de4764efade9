"""Git's own server over https: `git http-backend` behind a server of the standard library that keeps connections.

python -m bench.https FOLDER HOST PORT CERTIFICATE KEY
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VARIABLES = {
    "Content-Type": "CONTENT_TYPE",
    "Content-Encoding": "HTTP_CONTENT_ENCODING",
    "Git-Protocol": "GIT_PROTOCOL",
}
"""Headers that `git http-backend` reads, and the variables in which it does (RFC 3875)."""


class Backend(BaseHTTPRequestHandler):
    """One connection. Answers are whole before they are sent: they are those of small pushes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 20
    """So that headers and content leave in one flight."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        its = {
            **os.environ,
            "GIT_PROJECT_ROOT": sys.argv[1], "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "bench",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            **{name: self.headers[header] for header, name in VARIABLES.items() if header in self.headers},
        }  # fmt: skip
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        its["CONTENT_LENGTH"] = str(len(sent))
        done = subprocess.run(["git", "http-backend"], env=its, input=sent, stdout=subprocess.PIPE, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    do_POST = do_GET

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def main() -> None:
    _, _, host, port, certificate, key = sys.argv
    server = ThreadingHTTPServer((host, int(port)), Backend)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
