"""Replaces the ref `.` in the arguments of any verb by the branch that the request's path names.

The ref is replaced before a verb runs, in every field of the type `fields.RefName`, so that no verb can forget to do
so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from smartserver.records.model import HERE
from smartserver.verbs.fields import NAMES_A_REF

Branch = Callable[[], bytes]
"""A function that returns the name of the branch. It is called only if the arguments contain a `.`."""
Replace = Callable[[Any, Branch], Any]

StructT = TypeVar("StructT", bound=msgspec.Struct)


def with_branch(arguments: StructT, branch: Branch) -> StructT:
    """Return the arguments with each `.` replaced by the name of the branch."""
    replace = _of_struct(type(arguments))
    return arguments if replace is None else cast("StructT", replace(arguments, branch))


@functools.cache
def _of_struct(cls: type[msgspec.Struct]) -> Replace | None:
    """Return a function that replaces `.` by the branch's name in a struct's ref fields; None if the struct has
    none."""
    kind = cast("inspect.StructType", inspect.type_info(cls))
    fields = [(field.name, replace) for field in kind.fields if (replace := _of(field.type)) is not None]
    if not fields:
        return None

    def in_fields(struct: Any, branch: Branch) -> Any:
        new = {name: replace(getattr(struct, name), branch) for name, replace in fields}
        return msgspec.structs.replace(struct, **new)

    return in_fields


def _of(kind: inspect.Type) -> Replace | None:
    match kind:
        case inspect.Metadata(extra=extra) if extra == NAMES_A_REF:
            return lambda name, branch: branch() if name == HERE else name
        case inspect.Metadata(type=inner):
            return _of(inner)
        case inspect.UnionType(types=types):
            found = [replace for each in types if (replace := _of(each)) is not None]
            if not found:
                return None
            (inner_one,) = found
            return lambda value, branch: None if value is None else inner_one(value, branch)
        case inspect.ListType(item_type=item):
            one = _of(item)
            return one and (lambda values, branch: [one(value, branch) for value in values])
        case inspect.StructType(cls=cls):
            return _of_struct(cls)
        case inspect.DictType(key_type=key, value_type=value):
            if _of(key) is not None or _of(value) is not None:
                raise TypeError("no verb takes names of refs in a map: `.` would not be found there")
    return None
