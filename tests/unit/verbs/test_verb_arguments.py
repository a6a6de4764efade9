"""verbs.fields, verbs.here: arguments of every verb, made of the examples their fields give; `.` is the branch.

verbs.declare, verbs.all: what a declaration must say, and what it says when little is said."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import inspect

from smartserver.records.model import HERE
from smartserver.verbs import all as all_verbs
from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Body, Context, Effect, Permission, Result, verb
from smartserver.verbs.fields import Id, RefName
from smartserver.verbs.here import with_branch
from smartserver.verbs.repository_pull import PullRequest

NAMES = [verb.name for verb in all_verbs.every_verb()]
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


def example(kind: inspect.Type) -> Any:
    """A value of a field, from the examples in its type."""
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema=schema):
            return schema["examples"][0] if schema and "examples" in schema else example(inner)
        case inspect.UnionType(types=types):
            return example(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.ListType(item_type=item):
            return [example(item)]
        case inspect.DictType(key_type=key, value_type=value):
            return {example(key): example(value)}
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case inspect.StructType(cls=cls):
            return filled(cls)
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 300
        case inspect.FloatType():
            return 0.5
        case inspect.BytesType():
            return b"\x05"
        case inspect.StrType():
            return "a text"
    raise AssertionError(f"no example for {kind}")


def filled(cls: type) -> Any:
    """A struct with every field given."""
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    return cls(*(example(field.type) for field in kind.fields))


def plain(value: object) -> Any:
    """The values that travel, as a decoder without types gives them."""
    return decode(encode(value))


def bounds(kind: inspect.Type) -> tuple[inspect.Type, int | None]:
    """The type of a field without `None` and examples, and the most it may hold."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return bounds(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
    return kind, getattr(kind, "max_length", None)


def bounded(cls: type, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], inspect.Type, int | None]]:
    """Each field that has a length, and its items where those have one: its place, its kind, its bound."""
    struct = inspect.type_info(cls)
    assert isinstance(struct, inspect.StructType)
    for number, field in enumerate(struct.fields):
        yield from _bounded(field.type, (*place, number))


def _bounded(kind: inspect.Type, place: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], inspect.Type, int | None]]:
    inner, most = bounds(kind)
    if isinstance(inner, inspect.StructType):
        yield from bounded(inner.cls, place)
    elif isinstance(inner, inspect.BytesType | inspect.StrType | inspect.ListType | inspect.DictType):
        yield place, inner, most
        if isinstance(inner, inspect.ListType):
            yield from _bounded(inner.item_type, (*place, 0))


LENGTHS = [(name, *each) for name in NAMES for each in bounded(VERBS[name].request_type)]


@pytest.fixture(params=NAMES)
def any_verb(request: pytest.FixtureRequest) -> AnyVerb:
    return VERBS[request.param]


def test_an_unknown_argument_is_refused_and_an_unknown_result_skipped(any_verb: AnyVerb) -> None:
    longer = encode([*plain(filled(any_verb.request_type)), b"from a later release"])
    with pytest.raises(msgspec.ValidationError):
        decode(longer, type=any_verb.request_type)
    result = filled(any_verb.result_type)
    assert decode(encode([*plain(result), "from a later release"]), type=any_verb.result_type) == result


def test_what_has_a_default_may_be_left_out_at_the_end(any_verb: AnyVerb) -> None:
    fields = inspect.type_info(any_verb.request_type)
    assert isinstance(fields, inspect.StructType)
    needed = sum(field.required for field in fields.fields)
    assert all(field.required for field in fields.fields[:needed])
    values = plain(filled(any_verb.request_type))
    for count in range(needed, len(values) + 1):
        decoded = decode(encode(values[:count]), type=any_verb.request_type)
        assert plain(decoded)[:count] == values[:count]
    for count in range(needed):
        with pytest.raises(msgspec.ValidationError):
            decode(encode(values[:count]), type=any_verb.request_type)


@pytest.mark.parametrize(("name", "place", "kind", "most"), LENGTHS)
def test_a_field_over_its_bound_is_refused(
    name: str, place: tuple[int, ...], kind: inspect.Type, most: int | None
) -> None:
    assert most is not None, "every argument that has a length has a bound"
    values = plain(filled(VERBS[name].request_type))
    *above, last = place
    holder = values
    for each in above:
        holder = holder[each]
    right: object
    wrong: object
    if isinstance(kind, inspect.BytesType):
        right, wrong = [bytes(most), bytes(most + 1)]
    elif isinstance(kind, inspect.StrType):
        right, wrong = ["x" * most, "x" * (most + 1)]
    elif isinstance(kind, inspect.ListType):
        item = holder[last][0]
        right, wrong = [item] * most, [item] * (most + 1)
    else:
        assert isinstance(kind, inspect.DictType)
        right, wrong = ({f"key {number}": b"" for number in range(count)} for count in (most, most + 1))
    holder[last] = right
    decode(encode(values), type=VERBS[name].request_type)
    holder[last] = wrong
    with pytest.raises(msgspec.ValidationError, match=r"length"):
        decode(encode(values), type=VERBS[name].request_type)


def test_an_enumeration_takes_its_words_only(any_verb: AnyVerb) -> None:
    kind = inspect.type_info(any_verb.request_type)
    assert isinstance(kind, inspect.StructType)
    for number, field in enumerate(kind.fields):
        values = plain(filled(any_verb.request_type))
        if isinstance(field.type, inspect.EnumType):
            assert issubclass(field.type.cls, enum.StrEnum)
            values[number] = "word of a later release"
            with pytest.raises(msgspec.ValidationError):
                decode(encode(values), type=any_verb.request_type)


@pytest.mark.parametrize("field", ["ref", "tip"])
def test_names_and_ids_are_not_empty(field: str) -> None:
    kind = VERBS["Branch.create"].request_type
    empty = msgspec.structs.replace(filled(kind), **{field: b""})
    with pytest.raises(msgspec.ValidationError):
        decode(encode(empty), type=kind)


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


@pytest.mark.parametrize("any_verb", every_verb(), ids=lambda each: each.name)
def test_every_verb_takes_it_wherever_it_takes_a_ref(any_verb: AnyVerb) -> None:
    """A field that is called one is one: its type says so, so that nothing is done to a branch called `.`."""
    named = ref_fields(inspect.type_info(any_verb.request_type), "")
    encoded = msgspec.msgpack.encode(filled(any_verb.request_type)).replace(b"\xc4\x0frefs/heads/main", b"\xc4\x01.")
    given = with_branch(msgspec.msgpack.decode(encoded, type=any_verb.request_type), trunk)
    assert msgspec.msgpack.encode(given).count(b"\xc4\x0a" + TRUNK) == len(named)


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
