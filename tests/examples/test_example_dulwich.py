"""A git client in Python, dulwich, against git's own server: the round trips of a clone, and of a loop of clones."""

from __future__ import annotations

import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dulwich import porcelain

from netem.budget import TooManyRoundTrips, round_trips
from netem.watched import Watched

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

NAMES = ("one", "two", "three")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Git's daemon, begun for each connection as inetd would, over repositories of one commit each."""
    served = tmp_path / "served"
    for name in NAMES:
        (served / name).mkdir(parents=True)
        repository = porcelain.init(served / name)
        (served / name / "file").write_text(name)
        porcelain.add(repository, [served / name / "file"])
        porcelain.commit(repository, b"begin", author=b"A <a@example.org>", committer=b"A <a@example.org>")
        repository.close()

    class Daemon(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={served}", str(served)]
            subprocess.run(command, stdin=self.request, stdout=self.request, check=False)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def clone(port: int, name: str, into: Path) -> None:
    porcelain.clone(f"git://127.0.0.1:{port}/{name}", into / name).close()


def test_a_clone_has_its_budget(real_network: Watched, port: int, tmp_path: Path) -> None:
    """The connection; the request and the refs; what is wanted and the pack."""
    with round_trips(real_network, at_most=4) as taken:
        clone(port, "one", tmp_path)
    assert (tmp_path / "one" / "file").read_text() == "one"
    assert taken.counts.connections == 1


def test_a_loop_of_clones_is_pointed_at(real_network: Watched, port: int, tmp_path: Path) -> None:
    def all_of_them() -> None:
        for name in NAMES:
            clone(port, name, tmp_path)  # N+1

    with pytest.raises(TooManyRoundTrips) as caught, round_trips(real_network, at_most=4):
        all_of_them()
    said = str(caught.value)
    assert f"test_example_dulwich.py:{line_of('# N+1')} in all_of_them" in said
    assert "round trips were made one after the other from" in said
    assert "git-upload-pack /three host=127.0.0.1" in said
    assert "command=fetch | " in said


def line_of(text: str) -> int:
    """The line of this file that ends so."""
    with open(__file__) as source:
        return 1 + [line.endswith(f"  {text}\n") for line in source].index(True)
