"""Functions in the place of others: one that records its calls and does as before, and one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def calls_of(
    patch: pytest.MonkeyPatch, owner: object, name: str, note: Callable[..., Any] = lambda *arguments: arguments
) -> list[Any]:
    """Return a list that gets, for each call from now on, what `note` gives for its arguments."""
    found: list[Any] = []
    function = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        found.append(note(*arguments, **named))
        return function(*arguments, **named)

    patch.setattr(owner, name, call)
    return found


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises an error, whatever it is called with."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
