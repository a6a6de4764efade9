"""netem is a distribution of its own: built from its folder, and used where nothing else of ours is installed."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from sources import ROOT, sources

pytestmark = pytest.mark.long  # It builds and installs.

FOLDER = ROOT / "netem"
SETTINGS = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))

TESTS = """
import socket
import threading

import pytest


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                while line := connection.recv(99):
                    connection.sendall(line)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def ask(address, times):
    with socket.create_connection(address) as sock:
        for number in range(times):
            sock.sendall(b"GET /items/%d HTTP/1.1\\r\\n\\r\\n" % number)
            sock.recv(99)


@pytest.mark.max_round_trips(2)
def test_within(real_network, server):
    ask(server, 1)


@pytest.mark.max_round_trips(2)
def test_beyond(real_network, server):
    ask(server, 3)
"""

SENDS = '            sock.sendall(b"GET /items/%d HTTP/1.1\\r\\n\\r\\n" % number)'
CALLS = "    ask(server, 3)"


def run(*command: str | Path, where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of ours to be found but what is installed beside it."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, capture_output=True, text=True, cwd=where, env=variables | environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, which the build may litter, and without asking any index."""
    place = tmp_path_factory.mktemp("netem")
    shutil.copytree(FOLDER, place / "netem", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "./netem", where=place)
    assert built.returncode == 0, built.stderr
    (wheel,) = place.glob("netem-*.whl")
    return wheel


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the rest, built likewise."""
    place = tmp_path_factory.mktemp("whole")
    for name in ("hgext3rd", "smartserver", "transports", "netem"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, place)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", ".", where=place)
    assert built.returncode == 0, built.stderr
    (wheel,) = place.glob("smartserver-*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment in which nothing but this wheel is installed."""
    place = wheel.parent / "environment"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
    installed = run(*pip, "install", "--no-deps", "--no-index", wheel, where=wheel.parent)
    assert installed.returncode == 0, installed.stderr
    return python


@pytest.fixture(scope="module")
def libraries(wheel: Path) -> Path:
    """pytest and what it needs, as they are installed here, in a folder like the one they came from."""
    place = wheel.parent / "site-packages"
    place.mkdir()
    wanted = ["pytest"]
    for name in wanted:
        found = importlib.metadata.distribution(name)
        for top in {path.parts[0] for path in found.files or () if path.parts[0] not in ("..", "__pycache__")}:
            (place / top).symlink_to(found.locate_file(top))  # type: ignore[arg-type]
        for need in map(Requirement, found.requires or ()):
            if need.name not in wanted and (need.marker is None or need.marker.evaluate({"extra": ""})):
                wanted.append(need.name)
    return place


def test_it_contains_every_module_and_no_other(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {source.path for source in sources("netem")} | {"netem/py.typed"}


def test_it_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = HeaderParser().parsestr(archive.read(about).decode())
        assert any(name.endswith("/LICENSE") for name in archive.namelist())
    assert (said["Name"], said["License"], said.get_all("Requires-Dist")) == ("netem", "MIT", None)
    assert "MIT License" in (FOLDER / "LICENSE").read_text()


def test_no_other_distribution_owns_its_files(whole: Path) -> None:
    """Nor its command or its plugin: removing one distribution would break the other. A folder `breezy` would be a
    package where Breezy is not installed. In `hgext3rd`, a package of Mercurial's, is our extension alone."""
    with ZipFile(whole) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        (points,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        offered = archive.read(points).decode()
    assert {name.partition("/")[0] for name in names} == {"hgext3rd", "smartserver", "transports"}
    assert [name for name in names if name.startswith("hgext3rd/")] == ["hgext3rd/hpss.py"]
    assert "smartserver/plugins/breezy_shim/__init__.py" in names
    assert "netem" not in offered
    assert SETTINGS["project"]["requires-python"] == importlib.metadata.metadata("smartserver")["Requires-Python"]


def test_without_it_commands_say_in_one_line_what_they_need(whole: Path, tmp_path: Path) -> None:
    """And the others work."""
    with ZipFile(whole) as archive:
        archive.extractall(tmp_path / "site")
    absent = "sys.modules['netem'] = None; sys.path.insert(0, 'site')"
    program = f"import sys; {absent}; from smartserver.cli.main import main; main()"
    helped = run(sys.executable, "-c", program, "--help", where=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert "serve" in helped.stdout
    (tmp_path / "trace").touch()
    done = run(sys.executable, "-c", program, "trace", "explain", "trace", "--rtt", "1s", where=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smartserver: emulated links need netem: in a checkout, pip install ./netem\n"


def test_its_command_runs(python: Path, tmp_path: Path) -> None:
    done = run(python.parent / "netem", "--help", where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "proxy" in done.stdout


def test_its_plugin_is_found_by_pytest(python: Path, libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "test_asking.py").write_text(TESTS)
    done = run(python, "-m", "pytest", "--strict-markers", where=tmp_path, PYTHONPATH=str(libraries))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].strip("= ").startswith("1 failed, 1 passed")
    assert "4 round trips, at most 2 allowed" in lines
    sent, called = (1 + TESTS.splitlines().index(line) for line in (SENDS, CALLS))
    assert (
        "  3 round trips were made one after the other from "
        f"test_asking.py:{sent} in ask < test_asking.py:{called} in test_beyond: an N+1?"
    ) in lines
    assert any(line.endswith("  GET /items/2") for line in lines)
