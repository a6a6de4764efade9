"""hgext3rd.hpss: the modules that every command of hg loads, and the effect of the first URL of ours."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Served
from mercurials import HGRC, LIBRARIES, LOADER, Mercurial
from sources import ROOT

from hgext3rd import hpss

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

AT_EXIT = """
import sys
from mercurial import exchange, extensions, hg

def uisetup(ui):
    ui.atexit(lambda: ui.write(b"%s\\n" % report(ui).encode()))

def report(ui):
    return {report}
"""
"""An extension that prints something at the end of a command."""

LOADED = '" ".join(sorted(n for n, m in sys.modules.items() if n[:11] == "smartserver" and "Lazy" not in str(type(m))))'

CUT = """
import sys

def uisetup(ui):
    def each(frame, event, argument):
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.endswith("/transports/errors.py"):
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(each)
"""
"""An extension that interrupts hg while it loads a module that others need, too."""


@pytest.fixture
def hg(tmp_path: Path) -> Mercurial:
    """A user with a repository `here`."""
    user = Mercurial(tmp_path)
    user("init", "here")
    return user


def at_exit(hg: Mercurial, report: str, *words: str) -> str:
    """Return the output of an extension at the end of a command."""
    (hg.home / "at_exit.py").write_text(AT_EXIT.replace("{report}", report))
    return hg("--config", f"extensions.at_exit={hg.home}/at_exit.py", "-R", "here", *words)


def test_a_command_without_a_url_loads_next_to_nothing(hg: Mercurial) -> None:
    loaded = at_exit(hg, LOADED, "status").split()
    assert [name.rpartition(".")[2] for name in loaded] == ["smartserver", "plugins", "mercurial", "compat"]


def test_an_interrupt_while_the_rest_is_loaded(hg: Mercurial) -> None:
    (hg.home / "cut.py").write_text(CUT)
    done = hg.run("--config", f"extensions.cut={hg.home}/cut.py", "identify", "hpss://127.0.0.1:1/x")
    assert (done.returncode, done.stderr) == (255, "interrupted!\n")


def test_our_folders_are_the_last(hg: Mercurial) -> None:
    before = at_exit(Mercurial(hg.home, "[ui]\n"), '" ".join(sys.path)', "status").split()
    (hg.home / "libraries").symlink_to(LIBRARIES)
    hgrc = HGRC.replace("{libraries}", "~/libraries")
    after = at_exit(Mercurial(hg.home, hgrc), '" ".join(sys.path)', "status").split()
    assert after[: len(before)] == before
    assert set(after) == {*before, str(ROOT), str(hg.home / "libraries")}


def test_it_is_loaded_once(hg: Mercurial, served: Served) -> None:
    """By the first URL; the second finds one wrapper around each function of Mercurial's."""
    first, second = [served.url(f"hg-loaded-{number}") for number in range(2)]
    hg("init", first)
    hg("init", second)
    wrappers = 'str(len(extensions.getwrapperchain(exchange, "push")))'
    report = f'hg.peer(ui, {{}}, b"{second}").url().decode() + " " + {wrappers}'
    assert at_exit(hg, report, "identify", first).splitlines() == ["0" * 12, f"{second} 2"]


def test_a_scheme_of_the_users_own(hg: Mercurial, served: Served) -> None:
    """The extension `schemes` uses Mercurial's table, and not the function that makes peers."""
    hg("init", served.url("hg-scheme"))
    words = ("--config", "extensions.schemes=", "--config", f"schemes.code={served.url('')}")
    assert hg(*words, "-R", "here", "identify", "code://hg-scheme") == "0" * 12 + "\n"


def test_where_it_cannot_run_hg_goes_on(hg: Mercurial) -> None:
    loader = hg.home / "hpss.py"
    loader.write_text(LOADER.read_text().replace('"msgspec._core"', '"nowhere.compiled"'))
    done = hg.run("--config", f"extensions.hpss={loader}", "-R", "here", "identify", "--num")
    assert (done.returncode, done.stdout) == (0, "-1\n")
    assert done.stderr.startswith("hpss is off: the Python of hg lacks nowhere; run /")
    assert done.stderr.endswith(" -m pip install smartserver\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda patch: None, b""),
        (
            lambda patch: patch.setattr(sys, "version_info", (3, 9, 2)),
            b"it needs Python 3.11, hg runs on 3.9; pip install 'smartserver[hg]' brings another hg",
        ),
        (
            lambda patch: patch.setattr(hpss, "COMPILED", ("msgspec.missing",)),
            b"the Python of hg lacks msgspec; run " + sys.executable.encode() + b" -m pip install smartserver",
        ),
    ],
)
def test_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None], said: bytes
) -> None:
    change(monkeypatch)
    assert hpss.lacks([]) == said


def test_it_loads_on_an_older_python() -> None:
    tree = ast.parse(LOADER.read_text(), feature_version=(3, 9))
    imported = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    imported |= {each.name for node in tree.body if isinstance(node, ast.Import) for each in node.names}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names | {"hgdemandimport", "mercurial"}
    assert not LOADER.with_name("__init__.py").exists(), "the package is Mercurial's"
