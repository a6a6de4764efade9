"""A real server of a system that nothing of ours knows: the program imports the module that registers it."""

from __future__ import annotations

import re
from pathlib import Path

import invented
import pytest
from invented import SLATE, use
from serving import SMARTSERVER, Server, run

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium

pytestmark = pytest.mark.sockets

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(invented.__file__).parent)!r})
import invented
from smartserver.cli.main import main
main()
"""


def test_it_is_served_to_those_who_know_it(tmp_path: Path) -> None:
    with (
        Server(tmp_path, program=("-c", PROGRAM)) as server,
        Client(lambda: TcpMedium("127.0.0.1", server.port)) as client,
    ):
        use(client, "slates")
        done = run(*SMARTSERVER, "pull", server.url("slates"), str(tmp_path / "copy"))
    assert done.status == 1
    unknown = "not supported: the version-control system 'slate 1'"
    said = re.search(rf"{re.escape(server.url('slates'))}: {unknown} \(this side speaks (.*)\)\n$", done.err)
    assert said, done
    known = said[1].split(", ")
    assert {"bzr 2a", "git sha1", "git sha256"} <= set(known)
    assert SLATE.name not in known
    assert not (tmp_path / "copy").exists()
