"""Which modules a test file is the test of, and whether it executes them.

A test file claims a module if it names it and imports it, itself or by a support file. It names it in its own name
(`wire/frames.py`: `wire/test_frames.py`, `test_wire_frames.py`) or in its docstring (`wire.frames`). While the file
runs, `Watch` looks for a call of a function of each claimed module. It stops looking when it has seen one of each, so
that it costs next to nothing: most files call what they are about in their first test.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import FrameType

from sources import ROOT, Source, read

MIRRORED = (
    "smartserver/agent",
    "smartserver/client",
    "smartserver/plugins",
    "smartserver/records",
    "smartserver/server",
    "smartserver/store",
    "smartserver/trace",
    "smartserver/vcs",
    "smartserver/verbs",
    "smartserver/wire",
    "transports",
    "netem",
)
TESTS = (
    "tests/unit",
    "tests/conformance",
    "tests/property",
    "tests/simulated",
    "tests/sockets",
    "tests/packets",
)
"""Where test files claim modules. In `tests/interop` processes execute them, and a function that sees each call of
Breezy's own code costs too much there and ended CPython 3.11.2 once, in its garbage collection."""


def names_it(test: Source, module: str) -> bool:
    """Whether the test file names the module: by its own name, in a place that names the package, or in words."""
    short = module.removeprefix("smartserver.")
    if test.module.endswith(f"_{short.rpartition('.')[2]}") and short.partition(".")[0] in test.path:
        return True
    return re.search(rf"(?<![\w]){re.escape(short)}(?![\w])", ast.get_docstring(test.tree) or "") is not None


def claims(test: Source, modules: Collection[str], imports_of: Callable[[str], Sequence[str]]) -> list[str]:
    """Those of the modules that the test file claims. `imports_of`: what a support file imports, by its name."""
    names = [name for _, name in test.imports]
    names += [name for first in {name.partition(".")[0] for name in names} for name in imports_of(first)]
    imported = {".".join(name.split(".")[:count]) for name in names for count in range(1, name.count(".") + 2)}
    return [module for module in modules if module in imported and names_it(test, module)]


def claimed_by(path: str) -> list[str]:
    """The modules that a test file of ours claims; modules without a function that does anything need no test."""
    claimed = claims(read(path), _modules(), _imports_of)
    return [module for module in claimed if does_anything(read(f"{module.replace('.', '/')}.py"))]


def does_anything(module: Source) -> bool:
    """Whether a function in it has a statement; a module of types, limits and interfaces has none."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if any(not (isinstance(statement, ast.Expr | ast.Pass)) for statement in body):
                return True
            if any(isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) for statement in body):
                return True
    return False


@functools.cache
def _modules() -> frozenset[str]:
    paths = [path.relative_to(ROOT) for folder in MIRRORED for path in (ROOT / folder).rglob("*.py")]
    return frozenset(".".join(path.with_suffix("").parts) for path in paths if path.name != "__init__.py")


@functools.cache
def _support() -> dict[str, str]:
    """The support files: name and path."""
    paths = [path for folder in TESTS for path in (ROOT / folder).rglob("*.py") if not path.stem.startswith("test_")]
    return {path.stem: path.relative_to(ROOT).as_posix() for path in paths}


@functools.cache
def _imports_of(name: str) -> Sequence[str]:
    path = _support().get(name)
    return [] if path is None else [imported for _, imported in read(path).imports]


class Watch:
    """Sees whether a function of each of some modules is called while the context is open.

    Calls count in this thread and in those that it starts meanwhile.
    """

    def __init__(self, modules: Collection[str]) -> None:
        self._waiting = {str(ROOT / f"{module.replace('.', '/')}.py"): module for module in modules}

    @property
    def unseen(self) -> list[str]:
        """The modules of which no function was called."""
        return sorted(self._waiting.values())

    def __enter__(self) -> Watch:
        if self._waiting:
            threading.setprofile(self._look)
            sys.setprofile(self._look)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._waiting:
            sys.setprofile(None)
            threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # The bodies of modules, classes and their comprehensions run at import, which proves nothing.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename in self._waiting:
            del self._waiting[code.co_filename]
        if not self._waiting:
            sys.setprofile(None)
            threading.setprofile(None)


def path_of(file: Path) -> str | None:
    """The path of a test file from the root of the project; None where it claims nothing."""
    path = file.relative_to(ROOT).as_posix()
    return path if path.startswith(tuple(f"{folder}/" for folder in TESTS)) else None
