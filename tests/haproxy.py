"""`Haproxy`: Debian's HAProxy in front of servers on loopback, with the configuration of run_several_servers.md."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from needs import program

PAGE = Path(__file__).parents[1] / "doc" / "howto" / "run_several_servers.md"


def configuration(port: int, servers: Sequence[tuple[int, int]]) -> str:
    """That of the page, for HAProxy on a port of loopback. `servers`: the port of each, and of its `/readyz`."""
    (text,) = re.findall(r"```haproxy\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text, bound = re.subn(r"(?m)^( +bind) .*", rf"\1 127.0.0.1:{port}", text)
    text, named = re.subn(r"(?m)^ +server .*\n", "", text)
    assert (bound, named) == (1, 3)
    lines = [f"    server s{ready} 127.0.0.1:{own} port {ready}\n" for own, ready in servers]
    return text + "".join(lines)


class Haproxy:
    """The process, as a context."""

    def __init__(self, folder: Path, servers: Sequence[tuple[int, int]]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._file = folder / "haproxy.cfg"
        self._file.write_text(configuration(self.port, servers), encoding="utf-8")

    def __enter__(self) -> Self:
        command = [program("haproxy"), "-db", "-q", "-f", str(self._file)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert self._process.poll() is None, f"haproxy -c -f {self._file} says why"
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
