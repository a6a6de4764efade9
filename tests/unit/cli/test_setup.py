"""smartserver.cli.setup: what is written into git's and Breezy's configuration, in a home of the test's own."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cli_runs import why
from click.testing import CliRunner
from needs import needs
from sources import ROOT

from smartserver.cli.main import group
from smartserver.cli.setup import PROGRAMS
from smartserver.client.places import SCHEMES

pytestmark = pytest.mark.interop


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("smartserver.agent.compiled.installed", list)  # No test replaces a program of this environment.
    return tmp_path


def allowed() -> set[str]:
    """The setting of git for each scheme."""
    return {
        subprocess.run(
            ["git", "config", "--global", "--get-all", f"protocol.{scheme}.allow"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for scheme in SCHEMES
    }


def test_git_learns_the_protocol_once(home: Path) -> None:
    for _ in range(2):
        result = CliRunner().invoke(group, ["setup", "git"])
        assert (result.exit_code, result.output) == (
            0,
            "".join(f"protocol.{scheme}.allow = always\n" for scheme in SCHEMES),
        )
    assert allowed() == {"always\n"}
    assert (home / ".gitconfig").is_file()


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        pytest.param("cc", "in C", marks=needs("C compiler")),
        ("false", "unchanged, as false: status 1"),
        ("/nowhere", "unchanged, as /nowhere: No such file or directory"),
    ],
)
def test_the_programs_are_compiled_where_they_can_be(
    home: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    program = home / "git-remote-hpss"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o711)
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr("smartserver.agent.compiled.installed", lambda: [str(program)])
    result = CliRunner().invoke(group, ["setup", "git"])
    assert result.exit_code == 0
    assert (
        result.output.splitlines()[-1]
        == f"git-remote-hpss, git-remote-hpss+ssh, git-remote-hpss+tls, smartserver: {said}"
    )
    assert (program.read_bytes() != b"#!/bin/sh\n") == (compiler == "cc")
    assert program.stat().st_mode & 0o777 == 0o711


def test_without_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    result = CliRunner().invoke(group, ["setup", "git"])
    assert why(result) == "git is not on PATH: install it first"


def test_a_file_for_git_config_alone_is_not_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG", str(home / "other"))
    assert CliRunner().invoke(group, ["setup", "git"]).exit_code == 0
    assert (home / ".gitconfig").is_file()
    assert not (home / "other").exists()


def test_a_program_git_would_not_find_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(home / "bin"))
    result = CliRunner().invoke(group, ["setup", "git"])
    assert why(result).startswith(f"{PROGRAMS[0]} is not on PATH")


# -- brz


@pytest.fixture
def brz_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which Breezy has no plugin of ours."""
    for name in ("BRZ_HOME", "BRZ_PLUGINS_AT", "BRZ_PLUGIN_PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    return home


def test_brz_finds_the_plugin(brz_home: Path) -> None:
    folder = brz_home / ".config" / "breezy" / "plugins" / "hpss"
    for _ in range(2):
        result = CliRunner().invoke(group, ["setup", "brz"])
        assert (result.exit_code, result.output) == (0, f"brz has the plugin: {folder}\n")
    assert [file.name for file in folder.glob("*.py")] == ["__init__.py"]
    refused = subprocess.run(
        ["brz", "branch", "hpss://127.0.0.1:1/x"], capture_output=True, text=True, check=False, cwd=brz_home
    )
    assert "cannot connect to 127.0.0.1:1" in refused.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Breezy (brz) 3.2.1'", "this is Breezy (brz) 3.2.1: the plugin needs Breezy 3.3"),
        ("echo broken >&2; exit 3", "brz version: broken"),
        (
            "test $1 = plugins || printf 'Breezy (brz) 3.3.2\\n  Python interpreter: /usr/bin/python3 3.7.2\\n'",
            f"brz runs on Python 3.7 and this smartserver on {platform.python_version()}: "
            "install it for brz's Python with `/usr/bin/python3 -m pip install --user smartserver`",
        ),
        ("test $1 = plugins || echo 'Breezy (brz) 3.3.2'", "brz version does not say where Breezy's configuration is"),
    ],
)
def test_a_brz_that_will_not_do(brz_home: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    (brz_home / "brz").write_text(f"#!/bin/sh\n{script}\n")
    (brz_home / "brz").chmod(0o755)
    monkeypatch.setenv("PATH", f"{brz_home}:/usr/bin:/bin")
    result = CliRunner().invoke(group, ["setup", "brz"])
    assert why(result) == said


def test_breezys_log_is_not_needed(brz_home: Path) -> None:
    """`brz version` ends with a traceback where it cannot be begun."""
    (brz_home / ".cache").touch()
    result = CliRunner().invoke(group, ["setup", "brz"])
    assert result.output == f"brz has the plugin: {brz_home}/.config/breezy/plugins/hpss\n"


# -- hg


@pytest.fixture
def hg_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which Mercurial has no configuration."""
    for name in ("HGRCPATH", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def extensions_of_hg() -> str:
    """The extensions of hg, by its own words."""
    done = subprocess.run(["hg", "version", "--verbose"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.partition("Enabled extensions:")[2]


def test_hg_finds_the_extension(hg_home: Path) -> None:
    file = hg_home / ".hgrc"
    file.write_text("# mine\n[ui]\nusername = A\n")
    for _ in range(2):
        result = CliRunner().invoke(group, ["setup", "hg"])
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"{file}: [extensions] hpss =")
    text = file.read_text()
    assert text.startswith("# mine\n[ui]\nusername = A\n\n[extensions]\nhpss =")
    assert text.count("hpss =") == 1
    assert "hpss" in extensions_of_hg()


def test_hg_elsewhere_needs_the_path(hg_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This hg finds no extension by its name alone."""
    named = '*"extensions.hpss= "*) echo "*** failed to import extension hpss" >&2;;'
    stand_in(hg_home, monkeypatch, f"case \" $* \" in {named} esac; echo 'Mercurial (version 6.3.2)'")
    result = CliRunner().invoke(group, ["setup", "hg"])
    assert result.exit_code == 0, result.output
    folders = [each for each in result.output.splitlines() if "[hpss] path = " in each]
    assert result.output.startswith(f"{hg_home}/.hgrc: [extensions] hpss = {ROOT}/hgext3rd/hpss.py\n")
    assert folders == [f"{hg_home}/.hgrc: [hpss] path = {Path(msgspec.__file__).parents[1]}"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Mercurial Distributed SCM (version 5.6.1)'",
            "this is Mercurial Distributed SCM (version 5.6.1): the extension needs Mercurial 6.3 or newer",
        ),
        ("echo broken >&2; exit 3", "hg version: broken"),
        (
            "echo 'Mercurial Distributed SCM (version 6.9)'; echo 'hpss is off: it needs Python 3.11' >&2",
            "hg does not load the extension: hpss is off: it needs Python 3.11",
        ),
    ],
)
def test_a_hg_that_will_not_do(hg_home: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    stand_in(hg_home, monkeypatch, script)
    result = CliRunner().invoke(group, ["setup", "hg"])
    assert why(result) == said
    assert not (hg_home / ".hgrc").exists()


def test_a_configuration_that_cannot_be_written(hg_home: Path) -> None:
    (hg_home / ".hgrc").mkdir()
    result = CliRunner().invoke(group, ["setup", "hg"])
    assert why(result) == f"{hg_home}/.hgrc: Is a directory"


def stand_in(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let hg be a script."""
    (home / "hg").write_text(f"#!/bin/sh\n{script}\n")
    (home / "hg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
