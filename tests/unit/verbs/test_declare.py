"""verbs.declare, verbs.all: what a declaration must say, and what it says when little is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import VERBS, Arguments, Body, Context, Effect, Permission, Result, verb


class Asked(Arguments, frozen=True):
    """An argument."""

    name: bytes


class Told(Result, frozen=True):
    """A result."""

    name: bytes


@pytest.fixture(autouse=True)
def _verbs_as_they_were() -> Iterator[None]:
    before = dict(VERBS)
    yield
    VERBS.clear()
    VERBS.update(before)


def test_what_is_left_out_is_the_strictest() -> None:
    @verb("Test.plain")
    def plain(context: Context, request: Asked) -> Told:
        """Say it again.

        At length.
        And more.
        """
        return Told(request.name)

    assert VERBS["Test.plain"] is plain
    assert plain in every_verb()
    assert (plain.effect, plain.body, plain.permission) == (Effect.MUTATE, Body.NONE, Permission.WRITE)
    assert (plain.is_vfs, plain.own_verdict, plain.site_wide, plain.finds_above, plain.long, plain.alone) == (
        False,
    ) * 6
    assert plain.errors == ()
    assert plain.summary == "Say it again."
    assert plain.description.startswith("At length.")
    assert plain.description.endswith("And more.")
    assert (plain.request_type, plain.result_type) == (Asked, Told)


def test_a_name_is_declared_once() -> None:
    def ping(context: Context, request: Asked) -> Told:
        """Say it again."""
        return Told(request.name)

    before = VERBS["Server.ping"]
    with pytest.raises(TypeError, match=r"'Server\.ping' is declared twice"):
        verb("Server.ping")(ping)
    assert VERBS["Server.ping"] is before


def test_a_docstring_is_needed() -> None:
    def silent(context: Context, request: Asked) -> Told:
        return Told(request.name)

    with pytest.raises(TypeError, match=r"'Test\.silent' has no docstring"):
        verb("Test.silent")(silent)
    assert "Test.silent" not in VERBS


def no_request(context, request) -> Told:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Lacks the type of its request."""
    return Told(b"")


def no_result(context, request: Asked):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Lacks the type of its result."""


def request_of_another_kind(context: Context, request: Told) -> Told:
    """Takes a result."""
    return request


def result_of_another_kind(context: Context, request: Asked) -> Asked:
    """Gives arguments."""
    return request


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_request, "`request` is not annotated"),
        (request_of_another_kind, "`request` is not annotated"),
        (no_result, "what it returns is not annotated"),
        (result_of_another_kind, "what it returns is not annotated"),
    ],
)
def test_both_types_are_needed(function: Callable[..., Told], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        verb("Test.untyped")(function)
    assert "Test.untyped" not in VERBS


def test_every_verb_comes_by_name() -> None:
    names = [each.name for each in every_verb()]
    assert names == sorted(VERBS)
    assert {name.partition(".")[0] for name in names if "." in name} == {"Branch", "Map", "Repository", "Server"}
    assert {each.name for each in every_verb() if each.is_vfs} == {name for name in names if "." not in name}
