"""A server for the commands, a repository, and places for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.servers import Server, Workspace
from builders import History
from cli_runs import Places, stored


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Workspace("test") as workspace:
        yield workspace.start_ours()


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, History]:
    return tmp_path / "source", stored(tmp_path / "source", 5)


@pytest.fixture(params=["folder", "store", pytest.param("server", marks=pytest.mark.sockets)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A place, and the folder it is."""
    if request.param == "server":
        served: Server = request.getfixturevalue("server")
        name = request.node.name.replace("[", "-").replace("]", "")
        return served.url(name), served.served / name
    folder = tmp_path / "target"
    return (folder.as_uri() if request.param == "store" else str(folder)), folder


@pytest.fixture(params=["folder", pytest.param("url", marks=pytest.mark.sockets)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    if request.param == "folder":
        return tmp_path, lambda name: str(tmp_path / name)
    server: Server = request.getfixturevalue("server")
    folder = f"of-{request.node.name.replace('[', '-').replace(']', '')}"
    return server.served / folder, lambda name: server.url(f"{folder}/{name}")
