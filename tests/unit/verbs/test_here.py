"""verbs.here: `.` is the branch in every field of every verb that is the name of a ref."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import inspect
from test_verb_arguments import filled

from smartserver.records.model import HERE
from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.fields import Id, RefName
from smartserver.verbs.here import with_branch
from smartserver.verbs.repository_pull import PullRequest

TRUNK = b"team/trunk"


class Inner(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    ref: RefName
    key: bytes


class Outer(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    one: RefName
    perhaps: RefName | None
    several: Annotated[list[RefName], msgspec.Meta(max_length=9)] | None
    inside: list[Inner]
    other: bytes = HERE


def trunk() -> bytes:
    return TRUNK


def test_wherever_a_ref_is_named_and_nowhere_else() -> None:
    given = Outer(HERE, HERE, [HERE, b"a"], [Inner(HERE, HERE), Inner(b"b", b"")])
    assert with_branch(given, trunk) == Outer(TRUNK, TRUNK, [TRUNK, b"a"], [Inner(TRUNK, HERE), Inner(b"b", b"")])
    assert with_branch(Outer(b"x", None, None, []), trunk) == Outer(b"x", None, None, [])


def test_the_branch_is_looked_up_only_where_it_is_asked_for() -> None:
    def never() -> bytes:
        raise AssertionError

    given = PullRequest(refs=[b"refs/", b"..", b"./"])
    assert with_branch(given, never) == given


def test_names_in_a_map_are_refused_before_they_are_overlooked() -> None:
    class Mapped(Arguments, frozen=True, array_like=True):
        refs: dict[RefName, Id]

    with pytest.raises(TypeError, match="in a map"):
        with_branch(Mapped({}), trunk)


def ref_fields(kind: inspect.Type, name: str) -> list[str]:
    """Fields that hold bytes and are called as if they were names of refs."""
    match kind:
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner):
            return ref_fields(inner, name)
        case inspect.UnionType(types=types):
            return [found for each in types for found in ref_fields(each, name)]
        case inspect.StructType(fields=fields):
            return [found for each in fields for found in ref_fields(each.type, each.name)]
        case inspect.BytesType() if name in ("ref", "refs", "of", "branch", "branches", "follow"):
            return [name]
    return []


@pytest.mark.parametrize("verb", every_verb(), ids=lambda verb: verb.name)
def test_every_verb_takes_it_wherever_it_takes_a_ref(verb: AnyVerb) -> None:
    """A field that is called one is one: its type says so, so that nothing is done to a branch called `.`."""
    named = ref_fields(inspect.type_info(verb.request_type), "")
    encoded = msgspec.msgpack.encode(filled(verb.request_type)).replace(b"\xc4\x0frefs/heads/main", b"\xc4\x01.")
    given = with_branch(msgspec.msgpack.decode(encoded, type=verb.request_type), trunk)
    assert msgspec.msgpack.encode(given).count(b"\xc4\x0a" + TRUNK) == len(named)
