"""server.jail: which paths may be a repository's, and as what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.errors import InvalidPath
from smartserver.server.jail import MAX_PART, RESERVED, clean, place, prefixes
from smartserver.store.format import NAMES
from smartserver.wire.limits import MAX_PATH


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", ""),
        ("/", ""),
        ("a", "a"),
        ("//a/b//", "a/b"),
        ("a/b/c.git", "a/b/c.git"),
        ("a b", "a b"),
        ("a..b", "a..b"),
        ("~user/a", "~user/a"),
        ("%2e%2e", "%2e%2e"),
        ("Packs", "Packs"),
        ("gr\u00fc\u00dfe/\u65e5\u672c", "gr\u00fc\u00dfe/\u65e5\u672c"),
        ("x" * MAX_PART, "x" * MAX_PART),
        ("/".join(["x" * 127] * 8), "/".join(["x" * 127] * 8)),
    ],
)
def test_what_may_be_a_path(path: str, name: str) -> None:
    assert clean(path) == name
    assert clean(name) == name


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a//b", "empty"),
        ("..", "not allowed"),
        (".", "not allowed"),
        ("a/../b", "not allowed"),
        ("a/./b", "not allowed"),
        (".git", "begins with a dot"),
        ("a/.ssh/b", "begins with a dot"),
        ("...", "begins with a dot"),
        ("packs", "the store uses"),
        ("a/root/b", "the store uses"),
        ("a\\b", "backslash"),
        ("..\\a", "begins with a dot"),
        ("a\0b", "control"),
        ("a\x9b", "control"),
        ("a\ud800", "control"),
        ("gru\u0308n", "NFC"),
        ("x" * (MAX_PART + 1), f"longer than {MAX_PART} bytes"),
        ("\u00fc" * (MAX_PART // 2 + 1), f"longer than {MAX_PART} bytes"),
        ("/".join(["x" * 127] * 8) + "/x", f"longer than {MAX_PATH} bytes"),
        ("/" * (MAX_PATH + 1), f"longer than {MAX_PATH} bytes"),
        ("\ud800" * MAX_PATH, f"longer than {MAX_PATH} bytes"),
    ],
)
def test_what_may_not(path: str, why: str) -> None:
    with pytest.raises(InvalidPath) as invalid:
        clean(path)
    assert why in invalid.value.why
    assert len(str(invalid.value)) < MAX_PATH + 200


@pytest.mark.parametrize("end", ["", "\\", "/.hidden", "/" + "y" * 300 + "\n"])
def test_a_long_path_is_not_said_back_in_full(end: str) -> None:
    with pytest.raises(InvalidPath) as invalid:
        clean("x" * 300 + end)
    assert str(invalid.value).count("x" * 80 + "...'") >= 1
    assert len(str(invalid.value)) < 300


def test_every_name_the_store_uses_is_reserved() -> None:
    assert NAMES <= RESERVED


@given(st.text(max_size=60))
def test_a_clean_path_stays_below(path: str) -> None:
    try:
        name = clean(path)
    except InvalidPath:
        return
    assert not name.startswith("/")
    assert all(part and part != ".." and part not in RESERVED for part in name.split("/") if name)
    assert clean(name) == name


@pytest.mark.parametrize(
    ("path", "found"), [("", [""]), ("a", ["a", ""]), ("a/b", ["a/b", "a", ""]), ("a/b/c", ["a/b/c", "a/b", "a", ""])]
)
def test_prefixes_go_from_the_longest(path: str, found: list[str]) -> None:
    assert prefixes(path) == found


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", ""),
        ("/a/b/", "a/b"),
        ("a/.bzrignore", "a"),
        ("a/b/log/c", "a/b"),
        ("packs", ""),
        (".a/b", ""),
        ("a/" + "x" * (MAX_PART + 1), "a"),
        ("a/e\u0301/b", "a"),
    ],
)
def test_how_much_of_a_path_may_be_a_repository(path: str, name: str) -> None:
    assert place(path) == name
    assert clean(name) == name


@pytest.mark.parametrize("path", ["a//b", "a/../b", "a/.", "a/b\\c", "a/\n", "a/\ud800", "a/" + "x" * MAX_PATH])
def test_what_cannot_be_in_a_branch_either(path: str) -> None:
    with pytest.raises(InvalidPath):
        place(path)
