"""smartserver.cli.setup, cli.hgrc: what is written into the configuration of git, Breezy and Mercurial."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from cli_runs import run, why
from needs import needs
from scripts import script
from sources import ROOT

from smartserver.cli.errors import CommandError
from smartserver.cli.hgrc import location, with_item
from smartserver.cli.setup import PROGRAMS
from smartserver.client.places import SCHEMES

pytestmark = pytest.mark.interop


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which no tool has a configuration, or a plugin of ours."""
    for name in ("BRZ_HOME", "BRZ_PLUGINS_AT", "BRZ_PLUGIN_PATH", "HGRCPATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("smartserver.agent.compiled.installed", list)  # No test replaces a program of this environment.
    return tmp_path


def stand_in(home: Path, monkeypatch: pytest.MonkeyPatch, tool: str, text: str) -> None:
    """Let a tool be a script."""
    script(home / tool, text)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")


# -- git


def test_git_learns_the_protocol_once(home: Path) -> None:
    for _ in range(2):
        result = run("setup", "git")
        said = "".join(f"protocol.{scheme}.allow = always\n" for scheme in SCHEMES)
        assert (result.exit_code, result.output) == (0, said)
    listing = ["git", "config", "--global", "--list"]
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == sorted(f"protocol.{scheme}.allow=always" for scheme in SCHEMES)
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
    made = home / "git-remote-hpss"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o711)
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr("smartserver.agent.compiled.installed", lambda: [str(made)])
    result = run("setup", "git")
    assert result.exit_code == 0
    programs = "git-remote-hpss, git-remote-hpss+ssh, git-remote-hpss+tls, smartserver"
    assert result.output.splitlines()[-1] == f"{programs}: {said}"
    assert (made.read_bytes() != b"#!/bin/sh\n") == (compiler == "cc")
    assert made.stat().st_mode & 0o777 == 0o711


def test_without_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert why(run("setup", "git")) == "git is not on PATH: install it first"


def test_a_file_for_git_config_alone_is_not_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG", str(home / "other"))
    assert run("setup", "git").exit_code == 0
    assert (home / ".gitconfig").is_file()
    assert not (home / "other").exists()


def test_a_program_git_would_not_find_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert why(run("setup", "git")).startswith(f"{PROGRAMS[0]} is not on PATH")


# -- brz


def test_brz_finds_the_plugin(home: Path) -> None:
    folder = home / ".config" / "breezy" / "plugins" / "hpss"
    for _ in range(2):
        result = run("setup", "brz")
        assert (result.exit_code, result.output) == (0, f"brz has the plugin: {folder}\n")
    assert [file.name for file in folder.glob("*.py")] == ["__init__.py"]
    words = ["brz", "branch", "hpss://127.0.0.1:1/x"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False, cwd=home)
    assert "cannot connect to 127.0.0.1:1" in refused.stderr


def test_breezys_log_is_not_needed(home: Path) -> None:
    """`brz version` ends with a traceback where it cannot be begun."""
    (home / ".cache").touch()
    assert run("setup", "brz").output == f"brz has the plugin: {home}/.config/breezy/plugins/hpss\n"


# -- hg


def test_hg_finds_the_extension(home: Path) -> None:
    file = home / ".hgrc"
    file.write_text("# mine\n[ui]\nusername = A\n")
    for _ in range(2):
        result = run("setup", "hg")
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"{file}: [extensions] hpss =")
    text = file.read_text()
    assert text.startswith("# mine\n[ui]\nusername = A\n\n[extensions]\nhpss =")
    assert text.count("hpss =") == 1
    done = subprocess.run(["hg", "version", "--verbose"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "hpss" in done.stdout.partition("Enabled extensions:")[2]


def test_hg_elsewhere_needs_the_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This hg finds no extension by its name alone."""
    named = '*"extensions.hpss= "*) echo "*** failed to import extension hpss" >&2;;'
    stand_in(home, monkeypatch, "hg", f"case \" $* \" in {named} esac; echo 'Mercurial (version 6.3.2)'")
    result = run("setup", "hg")
    assert result.exit_code == 0, result.output
    folders = [each for each in result.output.splitlines() if "[hpss] path = " in each]
    assert result.output.startswith(f"{home}/.hgrc: [extensions] hpss = {ROOT}/hgext3rd/hpss.py\n")
    assert folders == [f"{home}/.hgrc: [hpss] path = {Path(msgspec.__file__).parents[1]}"]


@pytest.mark.parametrize(
    ("tool", "script", "said"),
    [
        ("brz", "echo 'Breezy (brz) 3.2.1'", "this is Breezy (brz) 3.2.1: the plugin needs Breezy 3.3"),
        ("brz", "echo broken >&2; exit 3", "brz version: broken"),
        (
            "brz",
            "test $1 = plugins || printf 'Breezy (brz) 3.3.2\\n  Python interpreter: /usr/bin/python3 3.7.2\\n'",
            f"brz runs on Python 3.7 and this smartserver on {platform.python_version()}: "
            "install it for brz's Python with `/usr/bin/python3 -m pip install --user smartserver`",
        ),
        (
            "brz",
            "test $1 = plugins || echo 'Breezy (brz) 3.3.2'",
            "brz version does not say where Breezy's configuration is",
        ),
        (
            "hg",
            "echo 'Mercurial Distributed SCM (version 5.6.1)'",
            "this is Mercurial Distributed SCM (version 5.6.1): the extension needs Mercurial 6.3 or newer",
        ),
        ("hg", "echo broken >&2; exit 3", "hg version: broken"),
        (
            "hg",
            "echo 'Mercurial Distributed SCM (version 6.9)'; echo 'hpss is off: it needs Python 3.11' >&2",
            "hg does not load the extension: hpss is off: it needs Python 3.11",
        ),
    ],
)
def test_a_tool_that_will_not_do(
    home: Path, monkeypatch: pytest.MonkeyPatch, tool: str, script: str, said: str
) -> None:
    stand_in(home, monkeypatch, tool, script)
    assert why(run("setup", tool)) == said
    assert not (home / ".hgrc").exists()


def test_a_configuration_that_cannot_be_written(home: Path) -> None:
    (home / ".hgrc").mkdir()
    assert why(run("setup", "hg")) == f"{home}/.hgrc: Is a directory"


@pytest.mark.parametrize(
    ("there", "variables", "expected"),
    [
        ([], {}, ".hgrc"),
        ([".config/hg/hgrc"], {}, ".config/hg/hgrc"),
        ([".config/hg/hgrc", ".hgrc"], {}, ".hgrc"),
        (["settings/hg/hgrc"], {"XDG_CONFIG_HOME": "{home}/settings"}, "settings/hg/hgrc"),
        ([".config/hg/hgrc"], {"XDG_CONFIG_HOME": "not/absolute"}, ".config/hg/hgrc"),
        ([".hgrc"], {"HGRCPATH": "{home}/own"}, "own"),
        ([], {"HGRCPATH": ":{home}/own:{home}/.hgrc"}, "own"),
        (["rcs/a.rc"], {"HGRCPATH": "{home}/rcs"}, "rcs/hpss.rc"),
    ],
)
def test_the_users_file(tmp_path: Path, there: list[str], variables: dict[str, str], expected: str) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    given = {name: value.format(home=tmp_path) for name, value in variables.items()}
    assert location({"HOME": str(tmp_path), **given}) == tmp_path / expected
    with pytest.raises(CommandError, match="HGRCPATH is empty"):
        location({"HOME": str(tmp_path), "HGRCPATH": ""})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[extensions]\nhpss = x\n"),
        ("[ui]\nusername = A", "[ui]\nusername = A\n\n[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss = x\n", "[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss=\n", "[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss = !\nrebase =\n", "[extensions]\nhpss = x\nrebase =\n"),
        ("[extensions]\nhpss = y\n  z\n# c\n # w\n[ui]\n", "[extensions]\nhpss = x\n# c\n[ui]\n"),
        ("[extensions]\n# c\nrebase =\n\n[ui]\n", "[extensions]\n# c\nrebase =\nhpss = x\n\n[ui]\n"),
        ("[extensions]\nrebase =", "[extensions]\nrebase =\nhpss = x\n"),
        ("[ui]\nhpss = 1\n", "[ui]\nhpss = 1\n\n[extensions]\nhpss = x\n"),
        (
            "[extensions]\nhpss = 1\n[ui]\n[extensions]\nhpss = 2\n",
            "[extensions]\nhpss = 1\n[ui]\n[extensions]\nhpss = x\n",
        ),
        ("[extensions]\nhpss2 = 1\nhpss.sub = 2\n", "[extensions]\nhpss2 = 1\nhpss.sub = 2\nhpss = x\n"),
    ],
)
def test_one_item(before: str, after: str) -> None:
    assert with_item(before, "extensions", "hpss", "x") == after


def test_odd_values() -> None:
    with pytest.raises(CommandError, match="cannot have a newline"):
        with_item("", "hpss", "path", "/a\n[hooks]")
    assert with_item("[extensions]\n", "extensions", "hpss", "") == "[extensions]\nhpss =\n"
