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
from sources import ROOT, sources

pytestmark = pytest.mark.long  # It builds and installs.

FOLDER = ROOT / "netem"
SETTINGS = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str | Path, where: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of ours to be found but what is installed beside it."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, capture_output=True, text=True, cwd=where, env=variables)


def build(place: Path, source: str, *paths: str) -> Path:
    """Build a wheel from a copy of these paths, which the build may litter, and without asking any index."""
    for path in paths:
        if (ROOT / path).is_dir():
            shutil.copytree(
                ROOT / path, place / path, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            )
        else:
            shutil.copy(ROOT / path, place)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", source, where=place)
    assert built.returncode == 0, built.stderr
    (wheel,) = place.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("netem"), "./netem", "netem")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the rest."""
    paths = ("hgext3rd", "smartserver", "transports", "netem", "setup.py", "pyproject.toml", "LICENSE", "README.md")
    return build(tmp_path_factory.mktemp("whole"), ".", *paths)


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


def test_it_contains_every_module_and_no_other(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {source.path for source in sources("netem")} | {"netem/py.typed"}


def test_it_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = HeaderParser().parsestr(archive.read(about).decode())
        offered = archive.read(about.replace("METADATA", "entry_points.txt")).decode()
        assert any(name.endswith("/LICENSE") for name in archive.namelist())
    assert (said["Name"], said["License"], said.get_all("Requires-Dist")) == ("netem", "MIT", None)
    assert "MIT License" in (FOLDER / "LICENSE").read_text()
    assert "[pytest11]\nnetem.pytest_plugin = netem.pytest_plugin\n" in offered


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
