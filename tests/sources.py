"""The project's own Python files, parsed once."""

from __future__ import annotations

import ast
import functools
import gc
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("smartserver", "transports", "netem")


@dataclass(frozen=True)
class Source:
    """One file: its path from the root of the project, its dotted name, and its tree."""

    path: str
    module: str
    is_package: bool
    tree: ast.Module

    @functools.cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Line and dotted name of everything imported anywhere in the file; `from a import b` gives `a.b`."""
        found: list[tuple[int, str]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [(node.lineno, f"{self._origin(node)}.{alias.name}") for alias in node.names]
        return found

    def _origin(self, node: ast.ImportFrom) -> str:
        """The module imported from, with the dots of a relative import worked out."""
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        kept = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join(parts[:kept] + ([node.module] if node.module else []))


def parse(path: str, text: str) -> Source:
    """The source of a file at `path` (from the root of the project)."""
    dotted = path.removesuffix(".py").replace("/", ".")
    is_package = dotted.endswith(".__init__")
    return Source(path, dotted.removesuffix(".__init__"), is_package, ast.parse(text, path))


def read(path: str) -> Source:
    """The source of one of our files."""
    return parse(path, (ROOT / path).read_text())


_parsed = functools.cache(read)


def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below the folders, by path."""
    paths = sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    gc.disable()  # Trees hold no cycles, and looking through millions of their nodes takes longer than parsing.
    try:
        found = tuple(map(_parsed, paths))
        gc.freeze()
    finally:
        gc.enable()
    return found


def forget() -> None:
    """Let the trees go."""
    _parsed.cache_clear()
