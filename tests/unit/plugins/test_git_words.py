"""plugins.git_words: what git's user reads names the repository, and what can be done."""

from __future__ import annotations

import pytest

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.plugins.git_words import ADVICE, in_words
from smartserver.vcs.base import CannotSend, VcsError, WrongContent
from transports.errors import CodedError, NoSpace


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            CorruptFile("packs/1.pack", 70, "why"),
            f"the repository 'p' is damaged: packs/1.pack at byte 70: why {ADVICE}",
        ),
        (
            WrongContent(b"\x01\x02", "its content has the id 03"),
            f"the repository 'p' seems to be damaged: object 0102 from the server: its content has the id 03 {ADVICE}",
        ),
        (
            NoSuchRepository("p", "a git repository"),
            "no repository at 'p' but a git repository, which is not served: to have it served, run "
            "`git push --mirror hpss://h:1/ANOTHER-PATH` in it",
        ),
        (NoSuchRepository("p", "a file"), "no repository at 'p' but a file"),
        (NoSuchRepository("p"), "no repository at 'p'"),
        (NoSpace("p/incoming"), "no space left to write 'p/incoming'"),
        (CannotSend("object 01 is missing"), "object 01 is missing"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_reads(error: CodedError | VcsError, words: str) -> None:
    assert in_words(error, "p", "h:1") == words


def test_the_advice_says_what_to_run() -> None:
    assert "`smartserver verify`" in ADVICE
