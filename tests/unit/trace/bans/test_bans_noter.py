"""trace.bans.noter: what bans find is noted, once a request, and all of it is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ban_cases import (
    DELETE,
    FIRES,
    HISTORY,
    INSERT,
    LINE,
    PING,
    SET,
    SET_DONE,
    SILENT,
    STATS,
    Case,
    asks_the_same_twice,
    goes_on_after_it_was_refused,
    one_request_for_each,
    pull_of,
)
from banned_talk import Talk, vfs_verbs

from smartserver.trace.bans.every import BEHAVIOURS, noter
from smartserver.trace.bans.model import Cost
from smartserver.trace.bans.noter import Note
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.verbs.repository_pull import PullResult
from smartserver.verbs.server_ping import PingResult
from smartserver.wire.events import Body
from smartserver.wire.messages import RequestFlag

PULLED = PullResult()


@pytest.fixture(autouse=True)
def _verbs() -> Iterator[None]:
    with vfs_verbs():
        yield


def notes(*cases: Case) -> list[Note]:
    """What is noted of a client that says these."""
    found: list[Note] = []
    talk = Talk()
    talk.watcher = noter(found.append)
    talk.connect()
    for case in cases:
        case(talk)
    return found


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in BEHAVIOURS for case in FIRES[name]])
def test_what_would_be_raised_is_noted(name: str, case: Case) -> None:
    """At the end, and by the first behaviour that is in question."""
    last = notes(case)[-1]
    assert last.behaviour in BEHAVIOURS
    assert list(BEHAVIOURS).index(last.behaviour) <= list(BEHAVIOURS).index(name)
    assert f" in {case.__name__}" in last.where


@pytest.mark.parametrize(("name", "case"), [(name, case) for name in BEHAVIOURS for case in SILENT[name]])
def test_what_is_none_is_not_noted_as_one(name: str, case: Case) -> None:
    assert name not in [note.behaviour for note in notes(case)]


def test_requests_are_told_by_their_numbers() -> None:
    (note,) = notes(asks_the_same_twice)
    assert (note.behaviour, note.requests, note.finding.cost) == ("duplicate", (2,), Cost.REQUEST)
    (note,) = notes(one_request_for_each)
    assert (note.behaviour, note.requests) == ("per-item", (1, 2))


def test_a_request_is_noted_once() -> None:
    def goes_on(talk: Talk) -> None:
        goes_on_after_it_was_refused(talk)
        talk.up(Body(1, b"segments"))

    (note,) = notes(goes_on)
    assert (note.behaviour, note.finding.cost) == ("late-refusal", Cost.BODY)


def test_all_calls_of_a_client_are_one_operation() -> None:
    def ask(talk: Talk) -> None:
        talk.done(pull_of(LINE[0]), results=[PULLED], version=1, known=1)

    assert [note.behaviour for note in notes(ask, ask)] == ["duplicate"]


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


def test_a_good_client_is_not_noted() -> None:
    def works(talk: Talk) -> None:
        talk.done(PING, results=[PingResult()])
        talk.done(STATS, results=[], version=1)
        talk.done(DELETE, results=[None], version=1, known=1)

    assert notes(works) == []
