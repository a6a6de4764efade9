"""`Haproxy`: Debian's HAProxy in front of servers on loopback, with the configuration of run_several_servers.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from needs import program
from processes import Listening, free_port

PAGE = Path(__file__).parents[1] / "doc" / "howto" / "run_several_servers.md"


def configuration(port: int, servers: Sequence[tuple[int, int]]) -> str:
    """That of the page, for HAProxy on a port of loopback. `servers`: the port of each, and of its `/readyz`."""
    (text,) = re.findall(r"```haproxy\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text, bound = re.subn(r"(?m)^( +bind) .*", rf"\1 127.0.0.1:{port}", text)
    text, named = re.subn(r"(?m)^ +server .*\n", "", text)
    assert (bound, named) == (1, 3)
    lines = [f"    server s{ready} 127.0.0.1:{own} port {ready}\n" for own, ready in servers]
    return text + "".join(lines)


class Haproxy(Listening):
    """The process, as a context."""

    def __init__(self, folder: Path, servers: Sequence[tuple[int, int]]) -> None:
        port, file = free_port(), folder / "haproxy.cfg"
        file.write_text(configuration(port, servers), encoding="utf-8")
        super().__init__([program("haproxy"), "-db", "-q", "-f", str(file)], port, f"haproxy -c -f {file} says why")
