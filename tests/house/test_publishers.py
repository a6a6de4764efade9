"""Where a store is, and how its writers exclude each other, is asked by those named here alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import Source, parse, sources

PUBLISHERS = ("smartserver.store.publish.file", "smartserver.store.publish.folder")
DECIDES = {
    "smartserver.store.far",
    *PUBLISHERS,
    "smartserver.store.format",  # It says what a discipline is.
    "smartserver.store.swap",  # It chooses the publisher.
}
READS_AHEAD = {
    "smartserver.store.incoming",
    "smartserver.store.open_pack",
    "smartserver.store.segment_reader",
    "smartserver.store.snapshot",
}
"""They ask `far` for more at once."""
PLACES = {"is_far", "far", "in_folder", "by_age"}
DISCIPLINES = {"FILE", "FOLDER", "OBJECT"}


def forks(source: Source) -> Iterator[str]:
    """Each use of what tells where a store is, of a discipline, and of a publisher's class."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in PLACES - {"far"}:
                yield f"{source.path}:{node.lineno}: {name}"
            case ast.Attribute(attr=name) if name in PLACES:
                yield f"{source.path}:{node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="Discipline"), attr=name) if name in DISCIPLINES:
                yield f"{source.path}:{node.lineno}: {name}"
            case ast.ImportFrom(module=module) if module in PUBLISHERS:
                yield f"{source.path}:{node.lineno}: {module}"


def test_only_the_publishers_fork() -> None:
    others = [source for source in sources("smartserver/store") if source.module not in DECIDES | READS_AHEAD]
    found = [line for source in others for line in forks(source)]
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_used() -> None:
    """But `far`, which defines what the others ask, and a publisher that asks nothing."""
    named = {source.module for source in sources("smartserver/store") if any(forks(source))}
    assert named | {"smartserver.store.far", PUBLISHERS[0]} == DECIDES | READS_AHEAD


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from smartserver.store.far import is_far\nx = is_far(y)", True),
        ("if snapshot.far: pass", True),
        ("if file.in_folder(): pass", True),
        ("x = Discipline.FOLDER", True),
        ("from smartserver.store.publish.file import FilePublisher", True),
        ("from smartserver.store import far\nx = far.AT_ONCE", False),
        ("from smartserver.store.publish.base import Publisher", False),
    ],
)
def test_the_check_itself(text: str, found: bool) -> None:
    assert any(forks(parse("smartserver/store/x.py", text))) is found
