"""plugins.git.words: what git's user reads names the repository, and what can be done."""

from __future__ import annotations

import pytest

from smartserver.client.places import parse_place
from smartserver.client.url import TcpLocation, parse
from smartserver.errors import A_GIT_REPOSITORY, CorruptFile, LimitExceeded, NoSuchRepository, OutcomeUnknown
from smartserver.plugins.git.words import ADVICE, in_words
from smartserver.records import limits
from smartserver.records.model import BaseTag, Entry
from smartserver.records.segment import STORED, SegmentStream, encode_segment
from smartserver.vcs.base import CannotSend, VcsError, WrongContent
from smartserver.vcs.git.pack import BaseNotHere
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
        (NoSuchRepository("p"), "no repository at 'p'"),
        (NoSpace("p/incoming"), "no space left to write 'p/incoming'"),
        (
            BaseNotHere(b"\x01\x02"),
            "object 0102, which what came rests on, is missing here: run `git fsck` "
            "(where that finds nothing wrong, the server left it out)",
        ),
        (LimitExceeded("bytes of a record", 7, 6), "a file has 7 bytes, expected no more than 6"),
        (
            LimitExceeded("bytes of a segment", 7, 6),
            "the new content of a commit has 7 bytes (compressed), expected no more than 6",
        ),
        (OutcomeUnknown("reset"), "it is unknown whether the change was made: reset"),
        (LimitExceeded("calls", 7, 6), "too many calls: 7, at most 6 are allowed"),
        (CannotSend("object 01 is missing"), "object 01 is missing"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_reads(error: CodedError | VcsError, words: str) -> None:
    assert in_words(error, TcpLocation("h", 1, "p")) == words


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("hpss+sftp://me@h/srv/code/a%20b", "sftp://me@h/srv/code/a%20b"),
        ("hpss+ssh://h/srv/code/a", "/srv/code/a"),
        ("hpss+ssh://h/~/a", "~/a"),
        ("hpss+ssh://h/~", "~"),
    ],
)
def test_the_path_is_that_of_the_url(url: str, called: str) -> None:
    """Not what is left of it below the folder that happens to be served."""
    said = in_words(CorruptFile("root", 7, "why"), parse_place(url))
    assert said.startswith(f"the repository {called!r} is damaged: root at byte 7")


def test_what_is_said_to_be_run_names_a_place_over_ipv6_as_it_is_read() -> None:
    said = in_words(NoSuchRepository("p", A_GIT_REPOSITORY), TcpLocation("::1", 1, "p"))
    assert "`git push --mirror hpss://[::1]:1/ANOTHER-PATH`" in said
    assert parse("hpss://[::1]:1/ANOTHER-PATH") == TcpLocation("::1", 1, "ANOTHER-PATH")


def test_what_a_server_finds_too_large_is_what_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages above are as other releases write them; here it is this one that refuses."""
    stream = SegmentStream(graph_first=False, limit=6)
    with pytest.raises(LimitExceeded) as segment:
        stream.feed(b"\x07")
    monkeypatch.setattr(limits, "MAX_RECORD", 6)
    entry = Entry(0, STORED, b"k", b"", BaseTag.NONE, b"", 7, 7, b"")
    with pytest.raises(LimitExceeded) as record:
        encode_segment(b"r", (), [entry], [b""], ())
    said = [in_words(each.value, TcpLocation("h", 1, "p")) for each in (segment, record)]
    assert said == [
        "the new content of a commit has 7 bytes (compressed), expected no more than 6",
        "a file has 7 bytes, expected no more than 6",
    ]


def test_the_servers_root_is_called_so() -> None:
    for error in (CorruptFile("root", 7, "why"), WrongContent(b"\x01", "why"), NoSuchRepository("")):
        said = in_words(error, TcpLocation("h", 1, ""))
        assert "at the server's root" in said
        assert "''" not in said
