"""The imports between our modules follow the table of CONTRIBUTING.md, in no circle; those of libraries `LIBRARIES`.

To bend a rule, change the table and say why in the commit; there is no exception list.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys

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
