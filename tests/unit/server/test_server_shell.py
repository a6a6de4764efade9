"""server.shell: what carries a session's bytes and looks at its clock, with a carrier and a clock that are none."""

from __future__ import annotations

import random

import pytest
from builders import MAIN, History
from carriers import PING, ROOM, Carrier, begin, heard, sessions_of
from dialogs import Served, message
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.internet.task import Clock

from smartserver.errors import ServerBusy
from smartserver.server.access import invoking_user
from smartserver.server.limits import Limits
from smartserver.server.sessions import Sessions
from smartserver.server.shell import SLICE, SessionProtocol
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, GoAway, Ping, Pong, Reply, Request
from smartserver.wire.limits import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    KEEP_IDLE,
    MAX_FRAME,
    PING_INTERVAL,
    STALL_TIMEOUT,
    UNREAD_BYTES,
)
from smartserver.wire.messages import RequestFlag, decode_failure, encode


def test_it_is_what_twisted_takes() -> None:
    assert IHalfCloseableProtocol.implementedBy(SessionProtocol)
    assert IPushProducer.implementedBy(SessionProtocol)


def test_bytes_in_and_out(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    assert carrier.producer is made
    assert carrier.streaming
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    assert carrier.calls == []
    made.readConnectionLost()
    assert carrier.calls == ["lose"]
    made.writeConnectionLost()
    assert sessions.open == {made}
    made.connectionLost()
    assert sessions.open == set()


def test_what_is_refused_is_read_on_until_the_peer_ends(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume", "lose write"]
    assert carrier.producer is None
    made.dataReceived(b"Host: x\r\n\r\n")
    assert carrier.calls == ["resume", "lose write"]
    made.readConnectionLost()
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_time(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    clock.advance(DRAIN_SECONDS - 1)
    made.writeConnectionLost()  # It took all that time to send what there was to say.
    clock.advance(DRAIN_SECONDS - 1)
    assert carrier.calls[2:] == []
    clock.pump([PING_INTERVAL] * 2)
    assert carrier.calls[2:] == ["lose"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_the_patience_for_that_has_an_end_in_bytes(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.writeConnectionLost()
    for _ in range(64):
        made.dataReceived(bytes(DRAIN_BYTES // 64))
    assert carrier.calls[2:] == []
    made.dataReceived(b"x")
    assert carrier.calls[2:] == ["lose"]


@pytest.mark.parametrize("end", ["time", "bytes", "time, the peer having ended"])
def test_a_peer_that_takes_nothing_does_not_keep_its_connection(sessions: Sessions, clock: Clock, end: str) -> None:
    """`loseConnection` would wait for it to read the answer, for ever."""
    made, carrier = begin(sessions)
    carrier.stuck = True
    if end == "time, the peer having ended":
        made.dataReceived(Connection(Role.CLIENT).send(PING))
        made.readConnectionLost()
        assert carrier.calls == ["lose"]
    else:
        made.dataReceived(b"hpss/2\n")
        assert carrier.calls == ["resume", "lose write"]
    before = list(carrier.calls)
    if end == "bytes":
        made.dataReceived(bytes(DRAIN_BYTES))
        assert carrier.calls == before
        made.dataReceived(b"x")
    else:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert carrier.calls == before
        clock.advance(PING_INTERVAL)
    assert carrier.calls == [*before, "abort"]
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_reading_pauses_and_goes_on(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    made.pause_reading()
    made.resume_reading()
    made.stopProducing()
    assert carrier.calls == ["pause", "resume"]


# -- sending


def test_what_is_long_goes_to_the_carrier_in_slices(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    carrier.stuck = True
    assert made.session is not None
    made.write(b"a" * ROOM)
    assert made.session.writable
    made.write(b"b" * (3 * SLICE + 1))
    made.write(b"c")
    assert carrier.writes == [ROOM, SLICE]
    assert not made.session.writable
    for taken in ([SLICE], [SLICE], [1, 1]):
        before = len(carrier.writes)
        assert not made.session.writable
        carrier.take()
        assert carrier.writes[before:] == taken
    assert made.session.writable
    assert carrier.written == b"a" * ROOM + b"b" * (3 * SLICE + 1) + b"c"


def test_what_waits_is_sent_before_the_connection_closes(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    carrier.stuck = True
    made.write(b"a" * (2 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    assert carrier.calls == ["resume"]
    assert not made.draining
    carrier.take()
    assert carrier.calls == ["resume", "lose write"]
    assert len(carrier.written) == 2 * SLICE
    assert not made.draining
    made.writeConnectionLost()
    assert made.draining


def test_a_peer_that_ended_gets_what_waits(sessions: Sessions) -> None:
    made, carrier = begin(sessions)
    carrier.stuck = True
    made.write(b"a" * (3 * SLICE))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.readConnectionLost()
    carrier.take()
    assert carrier.calls == ["resume"]
    carrier.take()
    assert carrier.calls == ["resume", "lose"]
    assert len(carrier.written) == 3 * SLICE


def test_answers_nobody_takes_have_a_bound(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    made, carrier = begin(sessions)
    carrier.stuck = True
    client = Connection(Role.CLIENT)
    ping = client.send(Ping(bytes(64)))
    ping += client.send(Ping(bytes(64))) * 10_000
    while carrier.calls == []:
        made.dataReceived(ping)
        ping = ping[-73 * 10_000 :]
        assert sum(len(each) for each in made._unsent) < UNREAD_BYTES + SLICE
    assert carrier.calls == ["abort"]
    assert [each.message for each in caplog.records] == [
        "a peer: dropped: it takes no answers: expected no more than 4194304 bytes of them unread"
    ]
    made.dataReceived(ping)  # Until Twisted says that it is gone.
    made.connectionLost()
    assert not made._unsent


def test_before_there_is_a_connection_nothing_happens(sessions: Sessions) -> None:
    made = SessionProtocol(sessions, invoking_user("tester"), "a peer")
    made.dataReceived(b"x")
    made.readConnectionLost()
    made.pauseProducing()
    made.resumeProducing()
    made._watch()
    made.connectionLost()
    assert made.session is None


def test_an_idle_connection_is_closed(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    clock.advance(KEEP_IDLE - 1)
    made.dataReceived(client.send(Request(2, PING.payload)))
    assert [type(event) for event in heard(carrier, client)] == [Reply]
    clock.advance(KEEP_IDLE / 4 + 1)
    assert heard(carrier, client) == []
    clock.pump([KEEP_IDLE / 4] * 3)
    assert heard(carrier, client) == [GoAway(b"no request for 900 s")]
    assert carrier.calls == ["resume", "lose write"]


@pytest.mark.parametrize("sent", [0, 3, 7])
def test_who_never_makes_a_request_holds_no_connection(clock: Clock, sent: int) -> None:
    """Nothing, a piece of the opening line, or all of it."""
    made, carrier = begin(sessions_of(clock, Limits(idle=40.0)))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING)[:sent])
    wait(clock, 39)
    assert heard(carrier, client) == []
    wait(clock, 40)
    assert heard(carrier, client) == [GoAway(b"no request for 40 s")]


@pytest.mark.parametrize("asked", [False, True])
def test_who_stops_in_the_middle_of_a_frame_is_dropped(clock: Clock, asked: bool) -> None:
    """Whether he never asked anything, or did and is given much longer for what he may ask next."""
    made, carrier = begin(sessions_of(clock, Limits(idle=40.0)))
    client = Connection(Role.CLIENT)
    if asked:
        made.dataReceived(client.send(PING))
        heard(carrier, client)
    frame = client.send(Request(2, PING.payload))
    made.dataReceived(frame[:-2])
    clock.pump([10.0] * 3)
    made.dataReceived(frame[-2:-1])  # Half of it is no stall while a byte comes.
    clock.pump([10.0] * 3)
    assert carrier.calls == []
    clock.advance(10.0)
    assert heard(carrier, client) == [GoAway(b"nothing of the rest of a request came for 40 s")]
    assert carrier.calls == ["resume", "lose write"]


# -- peers in the middle of something

INSERT = encode(message((repository_insert_pack, InsertPackRequest()), flags=RequestFlag.BODY))


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(3)
    served.push(line[:2], {MAIN: line[1]})
    return served


def wait(clock: Clock, seconds: float) -> None:
    """In the steps in which a reactor would."""
    while seconds > 0:
        clock.advance(min(seconds, PING_INTERVAL))
        seconds -= PING_INTERVAL


@pytest.mark.parametrize("part", ["a frame", "a request", "a body"])
def test_an_upload_that_stopped_is_dropped(
    served: Served, clock: Clock, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection, the quarantine and all; and one line says so."""
    before = served.files()
    made, carrier = begin(sessions_of(clock, served=served))
    client = Connection(Role.CLIENT)
    if part == "a request":
        made.dataReceived(client.send(Request(1, bytes(MAX_FRAME), more=True)))
    else:
        made.dataReceived(client.send(Request(1, INSERT, body=True)))
        piece = client.send(Body(1, served.history.segment(list(served.history.parents)[2])))
        made.dataReceived(piece)
        assert served.files() != before
        if part == "a frame":
            made.dataReceived(client.send(Body(1, b"1"))[:5])
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == []
    assert {type(event) for event in heard(carrier, client)} == {Ping}
    wait(clock, PING_INTERVAL)
    why = "nothing of the rest of a request came for 600 s"
    assert heard(carrier, client) == [GoAway(why.encode())]
    assert carrier.calls == ["resume", "lose write"]
    assert [each.message for each in caplog.records] == [f"a peer: dropped: {why}"]
    assert served.files() == before


def test_a_client_that_computes_keeps_its_upload_by_signs_of_life(served: Served, clock: Clock) -> None:
    made, carrier = begin(sessions_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    for _ in range(10):
        wait(clock, STALL_TIMEOUT / 2)
        pings = heard(carrier, client)
        assert len(pings) == STALL_TIMEOUT / 2 / PING_INTERVAL
        for event in pings:
            assert isinstance(event, Ping)
            made.dataReceived(client.send(Pong(event.payload)))
    made.dataReceived(client.send(Cancel(1)))
    assert [type(event) for event in heard(carrier, client)] == [Error]
    assert carrier.calls == []


def test_no_sign_of_life_is_asked_of_who_sends(served: Served, clock: Clock) -> None:
    made, carrier = begin(sessions_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    segment = served.history.segment(list(served.history.parents)[2])
    for at in range(40):
        clock.advance(PING_INTERVAL - 1)
        made.dataReceived(client.send(Body(1, segment[at : at + 1])))
    assert heard(carrier, client) == []
    assert carrier.calls == []


def test_a_client_that_waits_for_the_server_may_be_silent(sessions: Sessions, clock: Clock) -> None:
    """For as long as the server works."""
    made, carrier = begin(sessions)
    sessions.executor = Never()
    assert made.session is not None
    made.session.executor = Never()
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(PING))
    wait(clock, 20 * STALL_TIMEOUT)
    assert carrier.calls == []
    assert carrier.written == b""
    made.connectionLost()
    assert clock.getDelayedCalls() == []


def test_a_client_whose_upload_waits_for_the_disk_may_be_silent(served: Served, clock: Clock) -> None:
    made, carrier = begin(sessions_of(clock, served=served))
    assert made.session is not None
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    made.session.backlog(100 << 20)
    wait(clock, 2 * STALL_TIMEOUT)
    assert carrier.calls == ["pause"]
    # It hears that the server is there, whose answers to its own PINGs have to wait too.
    assert heard(carrier, client) == [Ping()] * int(2 * STALL_TIMEOUT / PING_INTERVAL)
    made.session.backlog(-(100 << 20))
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == ["pause", "resume"]
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["pause", "resume", "resume", "lose write"]


class Never:
    """An executor that is busy."""

    def run(self, *_: object, **__: object) -> None: ...

    def soon(self, *_: object) -> None: ...


def big_clone(clock: Clock) -> tuple[SessionProtocol, Carrier, Sessions]:
    """A connection on which a clone of a megabyte has begun and is not read."""
    served = Served(history=History())
    tip = served.history.commit({"noise": bytes(range(256)) * 16, "more": random.Random(1).randbytes(1 << 20)})
    served.push([tip], {MAIN: tip})
    sessions = sessions_of(clock, served=served)
    made, carrier = begin(sessions)
    carrier.stuck = True
    made.dataReceived(Connection(Role.CLIENT).send(Request(1, encode(message((repository_pull, PullRequest()))))))
    assert carrier.writes[-1] == SLICE
    return made, carrier, sessions


def test_a_clone_whose_reader_stopped_is_dropped(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    made, carrier, _ = big_clone(clock)
    wait(clock, STALL_TIMEOUT - PING_INTERVAL)
    assert carrier.calls == []
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["abort"]
    assert [each.message for each in caplog.records] == ["a peer: dropped: it took nothing of its answer for 600 s"]
    assert made.session is not None
    assert made.session.idle


def test_a_clone_may_take_as_long_as_it_takes(clock: Clock) -> None:
    """Its time has no limit while the peer reads, however slowly."""
    made, carrier, _ = big_clone(clock)
    while made._unsent:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take()
    assert clock.seconds() > 4 * STALL_TIMEOUT
    assert carrier.calls == []
    assert len(carrier.written) > 1 << 20


def test_a_clone_may_be_read_a_byte_at_a_time(clock: Clock) -> None:
    """What is asked of its reader is any sign that it reads, and no least rate: not a slice in that time."""
    made, carrier, _ = big_clone(clock)
    for _ in range(20):
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == []
    assert carrier.writes[-1] == SLICE
    assert made._full
    wait(clock, STALL_TIMEOUT)
    assert carrier.calls == []  # The last byte was seen to be gone a little after it was.
    wait(clock, PING_INTERVAL)
    assert carrier.calls == ["abort"]


def test_who_reads_slowly_is_no_less_heard_in_the_middle_of_an_upload(served: Served, clock: Clock) -> None:
    made, carrier = begin(sessions_of(clock, served=served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    carrier.stuck = True
    made.write(bytes(ROOM + 1))
    for _ in range(3):
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == []


@pytest.mark.parametrize("ended", [False, True])
def test_a_closing_connection_sends_what_was_asked_however_slowly_it_is_taken(clock: Clock, ended: bool) -> None:
    """Its peer ended after its request, or the server is stopping: its answer is cut no sooner for that."""
    made, carrier, _ = big_clone(clock)
    if ended:
        made.readConnectionLost()
    while made.session is not None and not made.session.idle:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        carrier.take()
    made.close()
    while made._unsent:
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert "abort" not in carrier.calls
        carrier.take()
    assert len(carrier.written) > 1 << 20
    for _ in range(3):  # The last slice is in the carrier's hands, and nobody asks for more.
        wait(clock, STALL_TIMEOUT - PING_INTERVAL)
        assert "abort" not in carrier.calls
        carrier.take(1)
    wait(clock, STALL_TIMEOUT + PING_INTERVAL)
    assert carrier.calls[-1] == "abort"


def test_what_the_kernel_still_sends_keeps_a_connection_whose_end_was_said(sessions: Sessions, clock: Clock) -> None:
    made, carrier = begin(sessions)
    carrier.stuck = True
    made.write(bytes(1000))
    made.dataReceived(b"GET / HTTP/1.1\r\n")
    made.writeConnectionLost()
    for _ in range(5):
        wait(clock, DRAIN_SECONDS - PING_INTERVAL)
        carrier.take(1)
    assert carrier.calls == ["resume", "lose write"]
    wait(clock, DRAIN_SECONDS + PING_INTERVAL)
    assert carrier.calls == ["resume", "lose write", "lose"]


def test_the_time_given_can_be_chosen(served: Served, clock: Clock) -> None:
    made, carrier = begin(sessions_of(clock, Limits(idle=8.0), served))
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)))
    clock.pump([2.0] * 3)
    assert carrier.calls == []
    clock.advance(2.0)
    assert heard(carrier, client) == [GoAway(b"nothing of the rest of a request came for 8 s")]


# -- refused uploads


def refused_upload(sessions: Sessions) -> tuple[SessionProtocol, Carrier, Connection]:
    """A connection on which an upload was refused that its client goes on with."""
    made, carrier = begin(sessions)
    client = Connection(Role.CLIENT)
    made.dataReceived(client.send(Request(1, INSERT, body=True)) + client.send(Body(1, b"x")))
    (error,) = heard(carrier, client)
    assert isinstance(error, Error)
    assert decode_failure(error.payload).fault.code == "no-such-repository"
    return made, carrier, client


def test_a_refused_upload_is_read_on_for_so_many_bytes(sessions: Sessions) -> None:
    made, carrier, client = refused_upload(sessions)
    piece = bytes(MAX_FRAME)
    for _ in range(DRAIN_BYTES // MAX_FRAME):
        made.dataReceived(client.send(Body(1, piece)))
    assert carrier.calls == []
    made.dataReceived(client.send(Body(1, b"x")))
    (goaway,) = heard(carrier, client)
    assert goaway == GoAway(b"the upload was refused: more than 67108864 bytes came after that")
    assert carrier.calls == ["resume", "lose write"]
    made.writeConnectionLost()
    for _ in range(DRAIN_BYTES // MAX_FRAME):
        made.dataReceived(piece)
    assert carrier.calls[2:] == []
    made.dataReceived(b"x")
    assert carrier.calls[2:] == ["lose"]


def test_a_refused_upload_is_read_on_for_so_long(sessions: Sessions, clock: Clock) -> None:
    made, carrier, client = refused_upload(sessions)
    for _ in range(4):
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Body(1, b"x")))
    (goaway,) = heard(carrier, client)
    assert goaway == GoAway(b"the upload was refused: it still came 60 s after that")
    assert carrier.calls == ["resume", "lose write"]


def test_what_is_open_besides_is_finished_first(sessions: Sessions, clock: Clock) -> None:
    made, carrier, client = refused_upload(sessions)
    assert made.session is not None
    made.session.executor = Never()
    made.dataReceived(client.send(Request(2, PING.payload)))
    for _ in range(10):
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Body(1, b"x")))
    assert [type(event) for event in heard(carrier, client)] == [GoAway]
    assert carrier.calls == []


def test_uploads_refused_one_after_the_other_are_each_read_to_their_ends(sessions: Sessions, clock: Clock) -> None:
    made, carrier, client = refused_upload(sessions)
    for number in range(2, 10):
        for _ in range(DRAIN_BYTES // MAX_FRAME // 4):
            made.dataReceived(client.send(Body(number - 1, bytes(MAX_FRAME))))
        clock.advance(PING_INTERVAL)
        made.dataReceived(client.send(Cancel(number - 1)) + client.send(Request(number, INSERT, body=True)))
        made.dataReceived(client.send(Body(number, b"x")))
        assert [type(event) for event in heard(carrier, client)] == [Error]
    made.dataReceived(client.send(End(9, 0, 1)))
    wait(clock, DRAIN_SECONDS * 2)
    assert carrier.calls == []


# -- one too many


def test_one_too_many_is_told_so(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    sessions = sessions_of(clock, Limits(connections=2))
    first, _ = begin(sessions)
    begin(sessions)
    why = sessions.admit("192.0.2.1:5", "192.0.2.1")
    words = "the server is busy: it takes no more than 2 connections at a time; try again later"
    assert [each.message for each in caplog.records] == [f"192.0.2.1:5: refused: {words}"]

    made, carrier = begin(sessions, refusal=why)
    client = Connection(Role.CLIENT)
    asked = client.send(PING)
    assert heard(carrier, client) == [GoAway(words.encode())]
    made.dataReceived(asked)
    (error,) = heard(carrier, client)
    assert isinstance(error, Error)
    fault = decode_failure(error.payload).fault
    assert (fault.code, fault.arguments) == ("server-busy", {"what": "connections", "limit": 2})
    assert carrier.calls == ["resume", "lose write"]
    made.connectionLost()

    assert sessions.admit("192.0.2.1:6", "192.0.2.1") is not None
    first.connectionLost()
    assert sessions.admit("192.0.2.1:7", "192.0.2.1") is None


def test_one_too_many_is_refused_before_its_request_is_whole(clock: Clock) -> None:
    sessions = sessions_of(clock)
    for request in (Request(1, bytes(MAX_FRAME), more=True), Request(1, INSERT, body=True)):
        made, carrier = begin(sessions, refusal=ServerBusy("connections", 2))
        client = Connection(Role.CLIENT)
        made.dataReceived(client.send(request))
        assert [type(event) for event in heard(carrier, client)] == [GoAway, Error]
        assert carrier.calls == ["resume", "lose write"]


@pytest.mark.parametrize("said", [b"", b"hpss/1\n\0\0", b"hpss/2\n"])
def test_one_too_many_that_asks_nothing_is_let_go(clock: Clock, said: bytes) -> None:
    made, carrier = begin(sessions_of(clock), refusal=ServerBusy("connections", 2))
    made.dataReceived(said)
    wait(clock, DRAIN_SECONDS)
    assert carrier.calls[:2] == ["resume", "lose write"]


# -- the end


def test_a_lost_connection_is_forgotten_at_once(sessions: Sessions, clock: Clock) -> None:
    """A server sees many short connections: a timer that held each for minutes would fill memory."""
    made, _ = begin(sessions)
    assert len(clock.getDelayedCalls()) == 1
    made.connectionLost()
    assert clock.getDelayedCalls() == []
    made.connectionLost()


def test_the_program_learns_of_the_loss(sessions: Sessions) -> None:
    made, _ = begin(sessions)
    lost: list[bool] = []
    made.when_lost = lambda: lost.append(True)
    made.connectionLost()
    assert lost == [True]
