"""smartserver.client.plain: nothing a server says commands a terminal."""

from __future__ import annotations

import pytest

from smartserver.client.plain import plain, plain_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no repository at 'größer'", "no repository at 'größer'"),
        ("\x1b[2J\x1b]0;title\x07", " [2J ]0;title "),
        ("two\nlines\r", "two lines "),
        ("\x9b1m\u202e\u200b", " 1m  "),
        ("\udcff", " "),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("a\n\nb\n", "a\n\nb\n"), ("a\n\x1b[2J\r\nb\u202e", "a\n [2J \nb ")],
)
def test_what_is_shown_of_lines(text: str, shown: str) -> None:
    assert plain_lines(text) == shown
