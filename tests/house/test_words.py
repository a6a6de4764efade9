"""Names say what a thing is. These words fit anything, so they say nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from sources import PACKAGES, Source, parse, sources

FORBIDDEN = {"manager", "managers", "helper", "helpers", "util", "utils", "utility", "utilities", "handler", "handlers"}
VAGUE = {"data", "info", "infos"}
"""Words that a test may use."""

FIXED = {
    "receive_data": "what the wire's core is given, called as in its kin (h11, h2, websockets)",
    "data_received": "what asyncio and Twisted call it when bytes arrive",
    "dataReceived": "the same, in Twisted's spelling",
    "installSignalHandlers": "what Twisted calls it",
    "dataBuffer": "what Twisted calls the bytes a descriptor has not sent",
    "_tempDataLen": "the size of those that it will add to them",
    "server_info": "the verb `Server.info`; names on the wire stay",
    "InfoRequest": "its arguments",
    "InfoResult": "its result",
    "set_last_revision_info": "what Breezy calls the change of a branch's revno and tip",
    "_read_last_revision_info": "the same, read",
    "import_last_revision_info_and_tags": "the same, with revisions and tags of another branch",
}
"""Names that are another's or are written down in a specification, and why."""

STREAMS = {"receive_data", "data_received", "dataReceived", "write", "write_some"}
"""Functions whose argument may be called `data`, as in the interfaces of Python and Twisted they take after."""


def parts(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def names(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of each file, class, function, parameter and variable, but for those that are fixed."""
    for part in source.path.removesuffix(".py").split("/"):
        yield 1, part
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if argument is not None and not (argument.arg == "data" and getattr(node, "name", "") in STREAMS):
                    yield argument.lineno, argument.arg


def forbidden(source: Source) -> list[str]:
    """Each name with such a word."""
    words = FORBIDDEN | (set() if source.path.startswith("tests/") else VAGUE)
    return [
        f"{source.path}:{line}: {name}"
        for line, name in names(source)
        if name not in FIXED and words.intersection(parts(name))
    ]


def test_names_say_something() -> None:
    found = [line for source in sources(*PACKAGES, "tests") for line in forbidden(source)]
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_used() -> None:
    """A name that is gone would excuse whoever takes it next."""
    used = {name for source in sources(*PACKAGES) for _, name in names(source)}
    assert used.issuperset({*FIXED, *STREAMS})


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
        ("transports/x.py", "def f(data, *, info, **more_data): ...\nlambda data: 0", 4),
        ("transports/info.py", "class PackInfo:\n    data: bytes", 3),
        ("transports/x.py", "def write(self, data): ...\ndef data_received(self, data): ...\nsys.exc_info()", 0),
        ("transports/x.py", "def write(self, info): ...\ndef writes(data): ...", 2),
        ("tests/x.py", "def f(data, helper): ...", 1),
    ],
)
def test_the_check_itself(path: str, text: str, count: int) -> None:
    assert len(forbidden(parse(path, text))) == count
