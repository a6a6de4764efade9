"""hgext3rd.hpss: the modules that every command of hg loads, and the effect of the first URL of ours."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mercurials import HGRC, LIBRARIES, LOADER, Mercurial
from sources import ROOT

from hgext3rd import hpss

pytestmark = pytest.mark.interop

AT_EXIT = """
import sys

def uisetup(ui):
    ui.atexit(lambda: ui.write(b"%s\\n" % report(ui).encode()))

def report(ui):
    return {report}
"""
"""An extension that prints something at the end of a command."""

LOADED = '" ".join(sorted(n for n, m in sys.modules.items() if n[:11] == "smartserver" and "Lazy" not in str(type(m))))'

STUB = """
from mercurial import extensions, localrepo
from smartserver.plugins.mercurial import compat

class Made(compat.BasePeer):
    def capabilities(self):
        return {b"lookup"}

    def url(self):
        return compat.location(self.path)

    def commandexecutor(self):
        return localrepo.localcommandexecutor(self)

    def lookup(self, key):
        return b"1" * 20

    def listkeys(self, namespace):
        return {}

    def close(self):
        pass

class Scheme:
    @staticmethod
    def make_peer(ui, path, create=False, **named):
        ui.status(b"make %s%s\\n" % (compat.location(path), b" create" if create else b""))
        return Made(ui, path)

    instance = make_peer
    islocal = staticmethod(lambda path: False)

def uisetup(ui):
    ui.status(b"uisetup\\n")
    for scheme in (b"hpss", b"hpss+tls", b"hpss+ssh", b"hpss+sftp", b"hpss+s3"):
        compat.peer_schemes()[scheme] = Scheme
    extensions.wrapfunction(compat.FACTORY, "peer", peer)

def extsetup(ui):
    ui.status(b"extsetup\\n")

def peer(orig, uiorrepo, opts, path, *args, **named):
    whose = b"repository" if hasattr(uiorrepo, "changelog") else b"user"
    getattr(uiorrepo, "ui", uiorrepo).status(b"peer for a %s\\n" % whose)
    return orig(uiorrepo, opts, path, *args, **named)
"""
"""A stub of the modules that the loader loads; it prints each call."""

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


@pytest.fixture
def stubbed(tmp_path: Path) -> Mercurial:
    """The same user, with `STUB` in place of the extension."""
    folder = tmp_path / "stubbed"
    inner = folder / "smartserver/plugins/mercurial"
    inner.mkdir(parents=True)
    for package in (inner, inner.parent, inner.parents[1]):
        (package / "__init__.py").touch()
    shutil.copy(ROOT / "smartserver/plugins/mercurial/compat.py", inner)
    (inner / "extension.py").write_text(STUB)
    (folder / "hgext3rd").mkdir()
    shutil.copy(LOADER, folder / "hgext3rd")
    user = Mercurial(tmp_path, HGRC.replace("{loader}", f"{folder}/hgext3rd/hpss.py"))
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


@pytest.mark.parametrize("scheme", ["hpss", "hpss+s3"])
def test_the_first_url_loads_the_rest(stubbed: Mercurial, scheme: str) -> None:
    said = stubbed("-R", "here", "identify", "-r", "1", f"{scheme}://host/x")
    assert said.splitlines() == [
        "uisetup",
        "extsetup",
        "peer for a repository",
        f"make {scheme}://host/x",
        "313131313131",
    ]


def test_it_is_loaded_once(stubbed: Mercurial) -> None:
    second = '__import__("mercurial.hg").hg.peer(ui, {}, b"hpss://host/second").url().decode()'
    said = at_exit(stubbed, second, "identify", "-r", "1", "hpss://host/first").splitlines()
    assert said[-3:] == ["peer for a user", "make hpss://host/second", "hpss://host/second"]
    assert said.count("uisetup") == said.count("extsetup") == 1


def test_a_scheme_of_the_users_own(stubbed: Mercurial) -> None:
    """The extension `schemes` uses Mercurial's table, and not the function that makes peers."""
    words = ("--config", "extensions.schemes=", "--config", "schemes.code=hpss://host/")
    said = stubbed(*words, "-R", "here", "identify", "-r", "1", "code://x")
    lines = [line.removesuffix("/") for line in said.splitlines()]  # 6.3 ends the URL with one.
    assert lines == ["uisetup", "extsetup", "make hpss://host/x", "313131313131"]


def test_where_it_cannot_run_hg_goes_on(stubbed: Mercurial) -> None:
    loader = stubbed.home / "stubbed/hgext3rd/hpss.py"
    loader.write_text(loader.read_text().replace('"msgspec._core"', '"nowhere.compiled"'))
    done = stubbed.run("-R", "here", "identify", "--num")
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
