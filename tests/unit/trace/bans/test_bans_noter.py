"""trace.bans.noter: what bans find is noted, once a request, and all of it is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ban_cases import (
    HISTORY,
    INSERT,
    LINE,
    SET,
    SET_DONE,
    Case,
)
from banned_talk import Talk, vfs_verbs

from smartserver.trace.bans.every import noter
from smartserver.trace.bans.model import Cost
from smartserver.trace.bans.noter import Note
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.wire.messages import RequestFlag


@pytest.fixture(autouse=True)
def _verbs() -> Iterator[None]:
    with vfs_verbs():
        yield


def notes(*cases: Case) -> list[Note]:
    """The notes on a client that says these."""
    found: list[Note] = []
    talk = Talk()
    talk.watcher = noter(found.append)
    talk.connect()
    for case in cases:
        case(talk)
    return found


def test_revisions_that_the_server_had_are_seen_in_its_answer() -> None:
    def push(talk: Talk, new: int) -> None:
        number = talk.ask(INSERT, SET, flags=RequestFlag.BODY)
        talk.body(number, b"".join(HISTORY.segment(each) for each in LINE), len(LINE))
        talk.answer(number, InsertPackResult(new), SET_DONE)

    (note,) = notes(lambda talk: push(talk, 1))
    assert (note.behaviour, note.finding.cost, note.finding.share) == ("resend", Cost.BODY, 0.75)
    assert note.finding.why == "3 of 4 revisions, which the server had"
    assert notes(lambda talk: push(talk, 4)) == []


def test_what_is_sent_again_is_not_judged_by_its_second_answer() -> None:
    def push(talk: Talk) -> None:
        for _ in range(2):
            talk.connect()
            number = talk.ask(INSERT, SET, flags=RequestFlag.BODY, again=b"i" * 16)
            talk.body(number, HISTORY.segment(LINE[3]))
        talk.answer(number, InsertPackResult(0), SET_DONE)

    assert notes(push) == []
