"""tests/needs.py is the one place that leaves a test out, and that knows the programs a machine may lack."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from needs import PACKAGES
from sources import ROOT, Source, sources

SKIPS = {"skip", "skipif", "importorskip", "skipIf", "skipUnless", "skipTest", "Skipped", "SkipTest"}

THERE = {"/bin/sh", "bash", "brz", "cat", "git", "hg", "mount", "sh", "stat", "true", "umount", "unshare"}
"""Programs that tests start by their names: of every Linux, or of the environment that `make` prepares."""

STARTS = {f"subprocess.{name}" for name in ("run", "Popen", "check_call", "check_output")}

COMMANDS = ("tests/bench/", "tests/interop/git_suite/", "tests/interop/hg_suite/", "tests/interop/brz_suite/")
"""Folders of commands; each says itself what it lacks."""


def skips(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in SKIPS:
            yield f"{source.path}:{node.lineno}: {node.attr}: leave tests out with tests/needs.py"


def starts(source: Source) -> Iterator[str]:
    """Command lines of programs of `PACKAGES`, and what is started by a name that no table knows."""
    known = {name for names in PACKAGES.values() for name in names} - {"ssh"}  # Our own code starts that one.
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and node.args]
    commands = {id(call.args[0]) for call in calls if ast.unparse(call.func) in STARTS}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.List | ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
            name = node.elts[0].value
            if isinstance(name, str) and (name in known or (id(node) in commands and name not in THERE)):
                yield f"{source.path}:{node.lineno}: {name}: find it by needs.program"


def checked() -> list[Source]:
    own = ("tests/needs.py", "tests/house/test_needs.py")
    return [each for each in sources("tests") if each.path not in own]


def test_tests_are_left_out_in_one_place() -> None:
    assert [found for source in checked() for found in skips(source)] == []


def test_programs_are_found_in_one_place() -> None:
    tests = [each for each in checked() if not each.path.startswith(COMMANDS)]
    assert [found for source in tests for found in starts(source)] == []


def test_continuous_integration_installs_each_package() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    packages = [*PACKAGES, "chromium", "gcc libc6-dev", "libfaketime"]
    assert [package for package in packages if f"({package})" not in text] == []
