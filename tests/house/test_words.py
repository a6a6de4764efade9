"""Names say what a thing is. These words fit anything, so they say nothing."""

from __future__ import annotations

import ast
import re

import pytest
from sources import PACKAGES, Source, parse, sources

FORBIDDEN = {"manager", "managers", "helper", "helpers", "util", "utils", "utility", "utilities", "handler", "handlers"}


def parts(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def forbidden(source: Source) -> list[str]:
    """Each name of a file, class, function, parameter or variable with such a word."""
    names: list[tuple[int, str]] = [(1, part) for part in source.path.removesuffix(".py").split("/")]
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append((node.lineno, name))
            case ast.arg(arg=name):
                names.append((node.lineno, name))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.append((node.lineno, name))
    return [f"{source.path}:{line}: {name}" for line, name in names if FORBIDDEN.intersection(parts(name))]


def test_names_say_something() -> None:
    found = [line for source in sources(*PACKAGES, "tests") for line in forbidden(source)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("read_at", ["read", "at"]),
        ("_HTTPServer", ["http", "server"]),
        ("PackReader2", ["pack", "reader", "2"]),
        ("MAX_FRAME", ["max", "frame"]),
    ],
)
def test_words_of_a_name(name: str, words: list[str]) -> None:
    assert parts(name) == words


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("transports/utils.py", "", 1),
        ("transports/x.py", "class PackManager: ...", 1),
        ("transports/x.py", "def handler_of(x): ...", 1),
        ("transports/x.py", "async def f(helper): ...", 1),
        ("transports/x.py", "self.helpers = util = 1", 2),
        ("transports/x.py", "logging.handlers.Handler()\nclass Handle: ...\ndef futile(): ...", 0),
    ],
)
def test_the_check_itself(path: str, text: str, count: int) -> None:
    assert len(forbidden(parse(path, text))) == count
