"""trace.bans: which rules there are, when each fires, what is noted, and what is raised to whom."""

from __future__ import annotations

import msgspec
import pytest
from ban_cases import (
    DELETE,
    FIRES,
    HISTORY,
    INSERT,
    LINE,
    SET,
    SET_DONE,
    SILENT,
    Case,
)
from banned_talk import Talk

from smartserver.errors import Banned
from smartserver.trace.bans.every import BEHAVIOURS, SILLY, bans, noter, of_calls
from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedRequest
from smartserver.trace.bans.noter import Note
from smartserver.trace.bans.operations import one_operation
from smartserver.trace.bans.rule import BadRule, Rule
from smartserver.trace.bans.watcher import Watcher
from smartserver.verbs.declare import VERBS
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.verbs.repository_stats import StatsRequest
from smartserver.verbs.server_ping import PingRequest
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Request
from smartserver.wire.messages import Call, RequestFlag, encode
from smartserver.wire.messages import Request as RequestMessage


def said(text: str) -> str:
    with pytest.raises(BadRule) as caught:
        bans([text])
    message = str(caught.value)
    assert message.startswith((f"no such rule: {text!r}", f"the rule {text!r} matches no verb"))
    assert "; a rule is SIDE:VERB[:PATH] with a SIDE of vfs, rpc, *" in message
    return message


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rpc:Repository.pak", "rpc:Repository.pack"),
        ("rpc:repository.pack", "rpc:Repository.pack"),
        ("vfs:Repository.pack", "rpc:Repository.pack"),
        ("vfs:Repository.*", "rpc:Repository"),
        ("vfs:mv", ""),
        ("vfs", "vfs:*"),
        ("vsf:*", "vfs:*"),
        ("Repository.pack", "rpc:Repository.pack"),
        ("pack", "rpc:Repository.pack"),
        ("duplicates", "duplicate"),
        ("sily", "silly"),
        ("", ""),
        (":", ""),
        ("vfs:", "vfs:*"),
        ("vfs:put:", "vfs:put"),
        ("lock.*", ""),
        ("rpc:[", ""),
    ],
)
def test_one_that_would_ban_nothing_names_those_near_it(text: str, near: str) -> None:
    message = said(text)
    assert f"{near}" in message.partition("; a rule is")[0]
    assert ("; near it: " in message) or not near


def test_a_server_bans_by_name_alone() -> None:
    (rule,) = of_calls(["vfs:*:*/log/*"])
    assert rule.text == "vfs:*:*/log/*"
    by_name = r"; a server bans calls by name \(SIDE:VERB\[:PATH\]\)$"
    for name, what in (("per-item", "is a behaviour"), ("silly", "are behaviours")):
        with pytest.raises(BadRule, match=f"^'{name}' {what} of a client, which bans by -Dhpss-ban={name}{by_name}"):
            of_calls(["rpc:*", name])


@pytest.mark.parametrize(
    ("rule", "path", "bans_it"),
    [
        ("*:*", "", True),
        ("*:*:/", "", True),
        ("*:*:/team/*", "team/project", True),
        ("*:*:team/*", "/team//project/", True),
        ("*:*:team", "team/project", False),
        ("*:*:*project", "team/project", True),
        ("*:*:[st]eam/?*", "team/project", False),
        ("*:*:/[st]eam/?*", "team/project", True),
        ("rpc:Server.p*", "x", True),
        ("vfs:*", "x", False),
    ],
)
def test_a_path_is_one_from_the_root(rule: str, path: str, bans_it: bool) -> None:
    assert Rule(rule).banned(path, [(VERBS["Server.ping"], PingRequest())]) == ("Server.ping" if bans_it else "")


def test_every_behaviour_is_here() -> None:
    assert FIRES.keys() == SILENT.keys()
    assert FIRES.keys() >= {*BEHAVIOURS, SILLY}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in FIRES.items() for case in cases])
def test_it_fires(name: str, case: Case) -> None:
    """At the last thing that is sent: with everything else allowed, that is what is banned."""
    with one_operation():
        case(Talk())
        with pytest.raises(Banned) as caught:
            case(Talk(name))
    banned = caught.value
    assert banned.rule == name or (name == SILLY and banned.rule in BEHAVIOURS)
    assert f" in {case.__name__}" in banned.where
    assert str(banned).startswith(f"{banned.verb} is banned by the rule {banned.rule}")


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in SILENT.items() for case in cases])
def test_it_is_silent(name: str, case: Case) -> None:
    with one_operation():
        case(Talk(name))


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


class Noting(Ban):
    """Notes what it is asked about."""

    name = "noting"

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def asking(self, asked: WatchedRequest) -> Finding | None:
        self.told.append([verb.name for verb, _ in asked.calls])
        return None


def talk_of(*made: Ban) -> Talk:
    talk = Talk()
    talk.watcher = Watcher(made)
    talk.connect()
    return talk


def test_what_no_server_would_take_is_left_to_it() -> None:
    noting = Noting()
    talk = talk_of(noting)
    with one_operation():
        talk.ask(("No.such_verb", PingRequest()))
        talk.ask(("Repository.stats", StatsRequest()), ("Branch.delete", StatsRequest()))
        message = RequestMessage("p", b"i" * 16, 0, [Call("Branch.delete", msgspec.Raw(b"\x01"))])
        talk.up(Request(9, encode(message)))
    assert noting.told == []


def test_what_is_sent_again_is_no_other_request() -> None:
    with one_operation():
        talk = Talk("silly")
        talk.ask(DELETE, again=b"i" * 16)
        talk.connect()
        talk.answer(talk.ask(DELETE, again=b"i" * 16))
        talk.ask(DELETE, again=b"i" * 16)
        talk = Talk("rpc:Branch.delete")
        for _ in range(2):
            with pytest.raises(Banned):
                talk.ask(DELETE, again=b"i" * 16)


def test_it_is_told_and_raised_before_anything_is_sent() -> None:
    told: list[Banned] = []
    client = Connection(Role.CLIENT, [Watcher(bans(["rpc:Server.ping"]), told.append)])
    message = RequestMessage("p", b"i" * 16, 0, [Call("Server.ping", msgspec.Raw(b"\x90"))])
    with pytest.raises(
        Banned, match=r"^Server\.ping is banned by the rule rpc:Server\.ping; called from tests/"
    ) as caught:
        client.send(Request(1, encode(message)))
    assert told == [caught.value]
    assert (caught.value.verb, caught.value.rule) == ("Server.ping", "rpc:Server.ping")
