"""The imports between our modules follow the table of CONTRIBUTING.md, in no circle; those of libraries `LIBRARIES`. A
package's `__init__` costs its importer nothing. The protocol, the store and both ends know no version-control system.

To bend a rule, change the table and say why in the commit; there is no exception list."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys

import pytest
from sources import PACKAGES, ROOT, Source, sources

VERSION = "smartserver.__version__"

EVERYTHING = ("smartserver", "transports", "netem")


def full(name: str) -> str:
    """Return the dotted name of a package that the page names by its name below `smartserver`."""
    return name if name.partition(".")[0] in PACKAGES else f"smartserver.{name}"


def layers(page: str) -> dict[str, tuple[str, ...]]:
    """Return the table of a page, with rows of several modules split, and a row `x.*` for each package in `x`."""
    section = page.partition("## Who may import whom\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, ...]] = {"smartserver": ()}
    for row in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE):
        cell, allowed = row.split(" | ")
        may = EVERYTHING if allowed.startswith("everything") else tuple(map(full, re.findall("`(.*?)`", allowed)))
        for name in map(full, re.findall("`(.*?)`", cell)):
            for module in packages_in(name.removesuffix(".*")) if name.endswith(".*") else [name]:
                found[module] = found.get(module, ()) + may
    return found


def packages_in(package: str) -> list[str]:
    """Return the packages directly in a package."""
    paths = (ROOT / package.replace(".", "/")).glob("*/__init__.py")
    return [f"{package}.{path.parent.name}" for path in paths]


LAYERS = layers((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
"""By module or package: the modules of ours that it may import beside itself and its own parts. The longest matching
name counts. `smartserver` is its `__init__` alone: it imports nothing and holds the version, `smartserver.__version__`.
"""

LIBRARIES: dict[str, tuple[str, ...]] = {
    "zstandard": ("smartserver.records.bulk", "smartserver.records.delta"),
    "msgspec": ("smartserver",),
    "twisted": ("smartserver.server", "smartserver.gateway", "smartserver.cli"),
    "zope": ("smartserver.server", "smartserver.gateway", "smartserver.cli"),
    "click": ("smartserver.cli",),
    "OpenSSL": ("smartserver.server.tls",),
    "cryptography": ("smartserver.server.tls",),
    "pymemcache": ("smartserver.server.memcached",),
    "psycopg": ("smartserver.store.postgres",),
    "prometheus_client": ("smartserver.server.metrics",),
    "obstore": ("transports.s3", "transports.s3_bucket"),
    "paramiko": ("transports.sftp_login",),
    "fastimport": ("smartserver.vcs", "smartserver.plugins"),
    "breezy": ("smartserver.plugins.breezy", "smartserver.plugins.breezy_shim", "smartserver.vcs.bzr.compat"),
    "mercurial": ("smartserver.plugins.mercurial", "smartserver.vcs.hg.compat"),
    "vcsgraph": ("smartserver.vcs.bzr.compat",),
    "bzrformats": ("smartserver.vcs.bzr.compat",),
    "pytest": (
        "netem.pytest_plugin",
        "smartserver.pytest_plugin",
    ),
}
"""By library that is not Python's own: the modules of ours that may import it."""

SPEAKS = (
    "smartserver.cli",
    "smartserver.programs",
    "smartserver.records.native",
    "smartserver.pytest_plugin",
    "netem.cli",
    "netem.pytest_plugin",
    "transports.s3_bucket",
)
"""The only modules that read the environment or print. `programs` passes the environment on, `native` is turned off by
it, and `s3_bucket` looks at the variables that its library reads, and panics at."""


def within(module: str, package: str) -> bool:
    """Tell whether `module` is `package` or below it."""
    return module == package or module.startswith(package + ".")


def layer(module: str) -> str:
    """Return the entry of `LAYERS` for a module."""
    fitting = [name for name in LAYERS if within(module, name) and (name != "smartserver" or module == name)]
    return max(fitting, key=len, default="")


def wrong_imports(source: Source) -> list[str]:
    """Return each import that the tables forbid."""
    wrong: list[str] = []
    own = layer(source.module)
    if not own:
        return [f"{source.path}: no row of CONTRIBUTING.md says what {source.module} may import"]
    for line, imported in source.imports:
        name = VERSION if imported == "smartserver" else imported
        top = name.partition(".")[0]
        if top in PACKAGES:
            allowed = LAYERS[own] if own == "smartserver" else (own, *LAYERS[own])
            if not any(within(name, package) for package in allowed):
                wrong.append(f"{source.path}:{line}: {own} may not import {name}")
        elif top not in sys.stdlib_module_names and not any(
            within(source.module, module) for module in LIBRARIES.get(top, ())
        ):
            wrong.append(f"{source.path}:{line}: {source.module} may not import {top}")
    return wrong


def spoken(source: Source) -> list[str]:
    """Return each use of the environment or of `print`."""
    found: list[str] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            found.append(f"{source.path}:{node.lineno}: print")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.environb", "os.getenv"):
            found.append(f"{source.path}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_imports_keep_to_the_tables() -> None:
    wrong = [line for source in sources(*PACKAGES) for line in wrong_imports(source)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_only_the_commands_read_the_environment_or_print() -> None:
    quiet = [source for source in sources(*PACKAGES) if not any(within(source.module, name) for name in SPEAKS)]
    found = [line for source in quiet for line in spoken(source)]
    assert not found, "\n" + "\n".join(found)


def test_every_package_is_in_the_table() -> None:
    """The table has no entry for a missing package: a later package of that name would inherit the entry."""
    modules = {source.module for source in sources(*PACKAGES)}
    assert LAYERS.keys() <= modules
    for names in (*LAYERS.values(), SPEAKS):
        assert modules.issuperset(set(names) - {VERSION})


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Late imports and those for types alone are included."""
    found = sources(*PACKAGES)
    names = {source.module for source in found}
    imports = {
        source.module: {name if name in names else name.rpartition(".")[0] for _, name in source.imports}
        for source in found
    }
    graphlib.TopologicalSorter({name: (to & names) - {name} for name, to in imports.items()}).prepare()


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


NEUTRAL = ("wire", "records", "store", "verbs", "server", "client")

SYSTEM = re.compile(
    r"(?<![a-z])(?:git|bzr|brz|bazaar|breezy|hg|mercurial|revno|inventor|left[-_ ]?hand|mainline)", re.IGNORECASE
)
"""The names of systems, and words of theirs for what is not in others."""

TELLS_OTHERS_APART = {
    "smartserver/wire/frames.py": "names the protocol of a peer that speaks another one, from HTTP to TLS",
    "smartserver/store/format.py": "names the tool whose folder this is: nothing is made inside it",
}
"""Files with words of systems that are no client's and no repository's of ours, and why."""


def words(text: str) -> list[str]:
    """Each line with such a word, and its number."""
    return [f"{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if SYSTEM.search(line)]


def found() -> dict[str, list[str]]:
    """The lines of each neutral file."""
    files = [source.path for source in sources(*[f"smartserver/{package}" for package in NEUTRAL])]
    lines = {path: words((ROOT / path).read_text(encoding="utf-8")) for path in files}
    return {path: each for path, each in lines.items() if each or SYSTEM.search(path)}


def test_no_word_of_a_system() -> None:
    wrong = {path: lines for path, lines in found().items() if path not in TELLS_OTHERS_APART}
    assert not wrong, "\n" + "\n".join(f"{path}:{line}" for path, lines in wrong.items() for line in lines or ["0"])


def test_every_exception_is_used() -> None:
    assert found().keys() >= TELLS_OTHERS_APART.keys()
