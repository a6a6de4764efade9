"""A package's `__init__` costs its importer nothing: the git client starts for every command."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from sources import PACKAGES, ROOT, sources

SPEAKS_FOR_ITS_PACKAGE = ("smartserver", "netem", "netem.describe", "netem.effects")
"""Packages whose `__init__` has names; every other is a docstring alone."""

OF_BREEZY = "smartserver.plugins.breezy_shim"
"""A package of Breezy's, loaded as `breezy.plugins.hpss`: its only module is `__init__`."""

MAX_LINES = 60
"""The most lines of an `__init__` that has names; a longer one belongs in a module of its own."""


def test_an_init_is_a_docstring() -> None:
    for source in sources(*PACKAGES):
        if not source.is_package or source.module == OF_BREEZY:
            continue
        assert ast.get_docstring(source.tree), f"{source.path}: says nothing of its package"
        if source.module not in SPEAKS_FOR_ITS_PACKAGE:
            assert len(source.tree.body) == 1, f"{source.path}: more than a docstring"
        assert len((ROOT / source.path).read_text().splitlines()) <= MAX_LINES, source.path


@pytest.mark.parametrize(
    "package",
    [source.module for source in sources(*PACKAGES) if source.is_package and source.module != OF_BREEZY],
)
def test_importing_a_package_loads_no_library(package: str) -> None:
    """An import of a package loads neither a library nor another of our packages."""
    script = f"import sys; import {package}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = run.stdout.split()
    heavy = {"twisted", "click", "zstandard", "msgspec", "paramiko", "fastimport", "pytest", "asyncio", "hypothesis"}
    assert not heavy.intersection(loaded)
    top = package.partition(".")[0]
    assert {name.partition(".")[0] for name in loaded}.intersection(PACKAGES) == {top}
    if package not in SPEAKS_FOR_ITS_PACKAGE:
        above = {package.rsplit(".", count)[0] for count in range(package.count(".") + 1)}
        assert {name for name in loaded if name.partition(".")[0] == top} == above
