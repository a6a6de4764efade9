"""`Nginx`: Debian's nginx in front of a server on loopback, with the configuration of serve_stock_git.md."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from typing import Self

from needs import program

PAGE = Path(__file__).parents[1] / "doc" / "howto" / "serve_stock_git.md"

AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{text}
}}
"""


class Nginx:
    """The process, as a context."""

    def __init__(self, folder: Path, backend: int, certificate: Path, key: Path) -> None:
        """`backend`: the port of the server."""
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        (text,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        for old, new in (
            ("127.0.0.1:8080", f"127.0.0.1:{backend}"),
            ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
            ("/etc/ssl/code.pem", str(certificate)),
            ("/etc/ssl/code.key", str(key)),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        self._folder, self._file = folder, folder / "nginx.conf"
        self._file.write_text(AROUND.format(folder=folder, text=text))

    def __enter__(self) -> Self:
        command = [program("nginx"), "-p", str(self._folder), "-c", str(self._file), "-e", "stderr"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert self._process.poll() is None, f"nginx -t -c {self._file} says why"
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
