"""`Nginx`: Debian's nginx in front of a server on loopback, with the configuration of serve_stock_git.md."""

from __future__ import annotations

import re
from pathlib import Path

from needs import program
from processes import Listening, free_port

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


class Nginx(Listening):
    """The process, as a context."""

    def __init__(self, folder: Path, backend: int, certificate: Path, key: Path) -> None:
        """`backend`: the port of the server."""
        folder.mkdir()
        port, file = free_port(), folder / "nginx.conf"
        (text,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        for old, new in (
            ("127.0.0.1:8080", f"127.0.0.1:{backend}"),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/code.pem", str(certificate)),
            ("/etc/ssl/code.key", str(key)),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        file.write_text(AROUND.format(folder=folder, text=text))
        command = [program("nginx"), "-p", str(folder), "-c", str(file), "-e", "stderr"]
        super().__init__(command, port, f"nginx -t -c {file} says why")
