"""transports.paths."""

from __future__ import annotations

import pytest
from transport_reads import NO_PATHS

from transports import paths


@pytest.mark.parametrize("path", ["", "a", "a/b", "..a", "a..", "...", "a\\b", " ", "naïve 文"])
def test_what_can_be_a_path(path: str) -> None:
    assert paths.check(path) == path


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_cannot(path: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - a lone surrogate is worded by the codec
        paths.check(path)
    with pytest.raises(ValueError):  # noqa: PT011
        paths.join("a", path)


@pytest.mark.parametrize(
    ("prefix", "path", "joined"), [("", "", ""), ("a", "", "a"), ("", "b/c", "b/c"), ("a/b", "c", "a/b/c")]
)
def test_join(prefix: str, path: str, joined: str) -> None:
    assert paths.join(prefix, path) == joined


@pytest.mark.parametrize(("path", "parts"), [("", ("", "")), ("a", ("", "a")), ("a/b/c", ("a/b", "c"))])
def test_split(path: str, parts: tuple[str, str]) -> None:
    assert paths.split(path) == parts
