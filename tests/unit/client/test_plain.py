"""smartserver.client.plain: nothing a server says commands a terminal."""

from __future__ import annotations

import pytest

from smartserver.client.plain import plain


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
