"""transports.errors: codes are owned once, and messages name the thing."""

from __future__ import annotations

import dataclasses

import pytest

from transports import errors
from transports.errors import CodedError, NoSuchFile, PermissionDenied, TransportError


def concrete() -> list[type[CodedError]]:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, CodedError)]
    return [cls for cls in classes if dataclasses.is_dataclass(cls)]


@pytest.mark.parametrize("cls", concrete())
def test_every_error_has_a_code_and_a_message_with_its_values(cls: type[CodedError]) -> None:
    values = {field.name: f"<{field.name}>" for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    error = cls(*values.values())
    assert CodedError.by_code[cls.code] is cls
    assert isinstance(error, TransportError)
    assert error.wire_arguments() == values
    for value in values.values():
        assert value in str(error)


def test_second_owner_of_a_code_is_refused() -> None:
    with pytest.raises(TypeError, match="'no-such-file' is already NoSuchFile"):
        type("Other", (CodedError,), {}, code="no-such-file")
    assert CodedError.by_code["no-such-file"] is NoSuchFile


def test_error_without_fields_travels_as_its_message() -> None:
    assert TransportError("why").wire_arguments() == {"message": "why"}


@pytest.mark.parametrize("cls", concrete())
def test_a_path_that_is_the_stores_root_is_left_out(cls: type[CodedError]) -> None:
    values = ["" if field.name == "path" else "why" for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    assert "''" not in str(cls(*values))


def test_why_nobody_is_permitted_comes_first_and_travels_only_when_there_is_a_reason() -> None:
    assert str(PermissionDenied("a")) == "permission denied: 'a'"
    assert PermissionDenied("a").wire_arguments() == {"path": "a"}
    assert str(PermissionDenied("a", "read-only file system")) == "read-only file system: 'a'"
    assert str(PermissionDenied("")) == "permission denied"
