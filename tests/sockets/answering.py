"""A server that answers each line with `re: ` and the line."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator


class Answering(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                self.wfile.write(b"re: " + line)


@contextlib.contextmanager
def answering(host: str = "127.0.0.1") -> Iterator[int]:
    """Serve on a port of `host`; its number."""

    class Server(socketserver.ThreadingTCPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    with Server((host, 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()
