"""Every module that does anything has a test file that says it is the module's, and imports it.

It says so by its name (`wire/frames.py`: `test_frames.py`, `test_wire_frames.py`) or in its docstring (`wire.frames`).
A support file beside it may import it. The commands (`cli`) are left out: they are tried as a user runs them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import pytest
from sources import Source, parse, sources

MIRRORED = (
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
    "tests/interop",
)


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


def says(test: Source, module: Source) -> bool:
    """Whether the test file names the module."""
    short = module.module.removeprefix("smartserver.")
    if test.module.rpartition(".")[2].endswith(f"_{module.module.rpartition('.')[2]}"):
        return True
    return re.search(rf"(?<![\w]){re.escape(short)}(?![\w])", ast.get_docstring(test.tree) or "") is not None


def imports(test: Source, module: Source, support: Mapping[str, Source]) -> bool:
    """Whether the test file, or a support file it imports, imports the module or something of it."""
    names = [name for _, name in test.imports]
    beside = [support[first] for name in names if (first := name.partition(".")[0]) in support]
    names += [name for each in beside for _, name in each.imports]
    return any(name == module.module or name.startswith(module.module + ".") for name in names)


def test_every_module_has_its_test_file() -> None:
    files = sources(*TESTS)
    support = {name: each for each in files if not (name := each.module.rpartition(".")[2]).startswith("test_")}
    tests = [each for each in files if each.module.rpartition(".")[2].startswith("test_")]
    modules = [source for source in sources(*MIRRORED) if not source.is_package and does_anything(source)]
    alone = [
        module.path
        for module in modules
        if not any(says(test, module) and imports(test, module, support) for test in tests)
    ]
    assert not alone, "no test file names (in its own name or docstring) and imports:\n" + "\n".join(alone)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("tests/unit/wire/test_frames.py", "from smartserver.wire import frames", True),
        ("tests/unit/wire/test_wire_frames.py", "from smartserver.wire.frames import encode", True),
        (
            "tests/unit/wire/test_vectors.py",
            "'''wire.frames, wire.states: vectors.'''\nimport smartserver.wire.frames",
            True,
        ),
        ("tests/unit/wire/test_vectors.py", "'''wire.frames_old.'''\nimport smartserver.wire.frames", False),
        ("tests/unit/wire/test_vectors.py", "import smartserver.wire.frames", False),
        ("tests/unit/wire/test_frames.py", "from smartserver.wire import states", False),
        ("tests/unit/wire/test_airframes.py", "from smartserver.wire import frames", False),
        ("tests/unit/wire/test_frames.py", "from framed import Framed", True),
        ("tests/unit/wire/test_frames.py", "from other import Framed", False),
    ],
)
def test_the_check_itself(path: str, text: str, found: bool) -> None:
    module = parse("smartserver/wire/frames.py", "")
    test = parse(path, text)
    support = {"framed": parse("tests/unit/wire/framed.py", "from smartserver.wire import frames")}
    assert (says(test, module) and imports(test, module, support)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LIMIT = 3\nclass A:\n    x: int\n    def f(self) -> int:\n        '''Gives x.'''\n", False),
        ("class A(Protocol):\n    def f(self) -> int: ...\n", False),
        ("def f(self) -> int:\n    '''Gives x.'''\n    return 1\n", True),
        ("def f(self) -> None:\n    g()\n", True),
    ],
)
def test_what_does_anything(text: str, found: bool) -> None:
    assert does_anything(parse("transports/x.py", text)) is found
