"""One end of a connection: bytes in, events out, events in, bytes out. No sockets, clocks or threads.

    connection = Connection(Role.CLIENT)
    socket.send(connection.send(Request(1, payload)))
    connection.receive_data(socket.recv(limits.RECEIVE_CHUNK))      # or receive_eof() at the end
    while (event := connection.next_event()) is not None: ...

There are only these four methods and two properties. `part_way` tells whether the peer is in the middle of a frame, and
`at_rest` whether another process can take the connection. `states` has the order of frames, and `frames` their
encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from smartserver.wire import events
from smartserver.wire.errors import LocalProtocolError, RemoteProtocolError
from smartserver.wire.frames import (
    CONTINUED,
    END_PAYLOAD,
    HEADER,
    IGNORED_FROM,
    MAX_ID,
    OF_CONNECTION,
    PREFACE,
    Frame,
    FrameType,
    ReceiveBuffer,
    check_header,
    encode_frames,
    encode_refusal,
    versions_of,
)
from smartserver.wire.limits import MAX_END, MAX_FRAME
from smartserver.wire.observer import Observer
from smartserver.wire.states import ConnectionState, Opening, Role, Side, Step

__all__ = ["Connection", "Role"]


def _read_message(kind: type[events.Request | events.Reply], body: bool, frame: Frame) -> events.Event:
    return kind(frame.id, bytes(frame.payload), body, _is_continued(frame))


READERS: dict[FrameType, Callable[[Frame], events.Event]] = {
    FrameType.REQUEST: partial(_read_message, events.Request, False),
    FrameType.REQUEST_WITH_BODY: partial(_read_message, events.Request, True),
    FrameType.BODY: lambda frame: events.Body(frame.id, bytes(frame.payload)),
    FrameType.END: lambda frame: _read_end(frame),
    FrameType.REPLY: partial(_read_message, events.Reply, False),
    FrameType.REPLY_WITH_BODY: partial(_read_message, events.Reply, True),
    FrameType.ERROR: lambda frame: events.Error(frame.id, bytes(frame.payload), _is_continued(frame)),
    FrameType.PROGRESS: lambda frame: events.Progress(frame.id, bytes(frame.payload)),
    FrameType.CANCEL: lambda frame: events.Cancel(frame.id),
    FrameType.PING: lambda frame: events.Ping(bytes(frame.payload)),
    FrameType.PONG: lambda frame: events.Pong(bytes(frame.payload)),
    FrameType.GOAWAY: lambda frame: events.GoAway(bytes(frame.payload)),
}
"""The function that makes an event of a frame, by the type of the frame."""


def _is_continued(frame: Frame) -> bool:
    return frame.type in CONTINUED and len(frame.payload) == MAX_FRAME


def _pieces(kind: FrameType, request_id: int, payload: bytes) -> list[Frame]:
    """Divide `payload` into as many frames as it needs, at least one."""
    if len(payload) <= MAX_FRAME:
        return [Frame(kind, request_id, payload)]
    view = memoryview(payload)
    return [Frame(kind, request_id, view[at : at + MAX_FRAME]) for at in range(0, len(view), MAX_FRAME)]


def _message(kind: FrameType, request_id: int, payload: bytes, more: bool) -> list[Frame]:
    """Return the frames of a message or, with `more`, of a part of a message."""
    frames = _pieces(kind, request_id, payload)
    full = _is_continued(frames[-1])
    if more and not full:
        raise LocalProtocolError(
            f"expected a part of {kind.name} {request_id} to be a multiple of {MAX_FRAME} bytes, got {len(payload)}"
        )
    if full and not more:
        frames.append(Frame(kind, request_id, b""))
    return frames


def _read_end(frame: Frame) -> events.End:
    payload = bytes(frame.payload)
    segments, size = END_PAYLOAD.unpack_from(payload)
    return events.End(frame.id, segments, size, payload[END_PAYLOAD.size :])


def _write_end(event: events.End) -> list[Frame]:
    if not 0 <= event.segments <= 0xFFFFFFFF or not 0 <= event.size <= 0xFFFFFFFFFFFFFFFF:
        raise LocalProtocolError(f"expected u32 segments and u64 bytes in END, got {event.segments} and {event.size}")
    if len(event.trace) > MAX_END:
        raise LocalProtocolError(f"expected at most {MAX_END} bytes of a ServerTrace in END, got {len(event.trace)}")
    return [Frame(FrameType.END, event.id, END_PAYLOAD.pack(event.segments, event.size) + event.trace)]


def _write_message(plain: FrameType, with_body: FrameType, event: events.Request | events.Reply) -> list[Frame]:
    return _message(with_body if event.body else plain, event.id, event.payload, event.more)


WRITERS: dict[type, Callable[..., list[Frame]]] = {
    events.Request: partial(_write_message, FrameType.REQUEST, FrameType.REQUEST_WITH_BODY),
    events.Reply: partial(_write_message, FrameType.REPLY, FrameType.REPLY_WITH_BODY),
    events.Error: lambda event: _message(FrameType.ERROR, event.id, event.payload, event.more),
    events.Body: lambda event: _pieces(FrameType.BODY, event.id, event.chunk),
    events.End: _write_end,
    events.Progress: lambda event: [Frame(FrameType.PROGRESS, event.id, event.payload)],
    events.Cancel: lambda event: [Frame(FrameType.CANCEL, event.id, b"")],
    events.Ping: lambda event: [Frame(FrameType.PING, 0, event.payload)],
    events.Pong: lambda event: [Frame(FrameType.PONG, 0, event.payload)],
    events.GoAway: lambda event: [Frame(FrameType.GOAWAY, 0, event.reason)],
}
"""The function that makes the frames of an event, by the type of the event."""


class Connection:
    """The protocol at one end of a connection. `role`: the role of this end.

    After a `RemoteProtocolError` every further call raises it again. After a `LocalProtocolError` the connection is
    as it was before the call.
    """

    def __init__(self, role: Role, observers: Iterable[Observer] = (), *, last_id: int = 0) -> None:
        """`last_id`: the id of the last request on a connection that was at rest; 0 for a new connection."""
        self._role = role
        self._observers: Sequence[Observer] = tuple(observers)
        self._state = ConnectionState(role, last_id)
        self._buffer = ReceiveBuffer(reuses=role is Role.CLIENT)
        self._eof = False
        self._broken: RemoteProtocolError | None = None
        self._unseen = 0
        """The number of bytes that were read and not yet reported to the observers."""

    def receive_data(self, data: bytes) -> None:
        """Add bytes that were received from the peer. Empty `data` has no effect.

        Raises:
            LocalProtocolError: `receive_eof` was called before.
            RemoteProtocolError: the connection is broken.
        """
        self._raise_if_broken()
        if self._eof:
            raise LocalProtocolError(f"expected no bytes after the end, got {len(data)}")
        self._buffer.feed(bytes(data))

    def receive_eof(self) -> None:
        """Note that the peer sends no more bytes. After all earlier events, `next_event` returns `PeerClosed` or raises
        Interrupted.

        Raises:
            RemoteProtocolError: the connection is broken.
        """
        self._raise_if_broken()
        self._eof = True

    def next_event(self) -> events.Event | None:
        """Return the next event, or None if more bytes are needed. After `PeerClosed` the result is always None.

        Raises:
            RemoteProtocolError: the peer violated the protocol. The message names the expected and the received bytes.
            Interrupted: the peer's bytes ended too early. The message names the expected bytes.
        """
        self._raise_if_broken()
        try:
            return self._read()
        except RemoteProtocolError as error:
            self._broken = error
            raise

    def send(self, event: events.Event) -> bytes:
        """Return the bytes of an event for the peer. The bytes of the first event begin with the opening line.

        Raises:
            LocalProtocolError: the event may not be sent now.
            RemoteProtocolError: the connection is broken.
        """
        self._raise_if_broken()
        sent = self._write_refusal(event) if isinstance(event, events.VersionMismatch) else self._write(event)
        for observer in self._observers:
            observer.sent(event, len(sent))
        return sent

    @property
    def at_rest(self) -> bool:
        """True if neither side must send anything and no frame is incomplete, so that another process can take the
        connection. This holds only once `next_event` has returned None."""
        return self._broken is None and not self._eof and self._state.at_rest and not self._buffer.part_way

    @property
    def part_way(self) -> bool:
        """True if only a part of a frame was received, so that the peer must send more."""
        return self._buffer.part_way

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args)

    def _read(self) -> events.Event | None:
        while True:
            side = self._state.sides[self._role.peer]
            if side is Side.SILENT:
                line = self._buffer.opening(refusal=self._role is Role.CLIENT)
                if line is not None:
                    self._unseen += len(line)
                    if line == PREFACE:
                        self._state.opening(self._role.peer, Opening.PREFACE)
                        continue
                    self._state.opening(self._role.peer, Opening.OTHER_VERSION)
                    return self._notify(events.VersionMismatch(versions_of(line)))
            elif side is Side.OPEN:
                frame = self._buffer.frame()
                if frame is not None:
                    event = self._read_frame(frame)
                    if event is not None:
                        return event
                    continue
            elif side is Side.FOREIGN:
                self._unseen += self._buffer.discard()
            if self._eof and side is not Side.CLOSED:
                self._state.end(self._role.peer, self._buffer.unfinished())
                return self._notify(events.PeerClosed())
            return None

    def _read_frame(self, frame: Frame) -> events.Event | None:
        """Return the event of a frame, or None if the frame is skipped."""
        self._unseen += HEADER.size + len(frame.payload)
        if frame.type >= IGNORED_FROM:
            return None
        kind = FrameType(frame.type)
        event = READERS[kind](frame)
        if not self._account(self._role.peer, kind, frame, event):
            self._notify(event)
            return None
        return self._notify(event)

    def _account(self, sender: Role, kind: FrameType, frame: Frame, event: events.Event) -> bool:
        step = Step((kind, _is_continued(frame)))
        if kind in OF_CONNECTION:
            self._state.step_connection(sender, step)
            return True
        size = event.size if isinstance(event, events.End) else len(frame.payload)
        return self._state.step(sender, frame.id, step, size)

    def _notify(self, event: events.Event) -> events.Event:
        size, self._unseen = self._unseen, 0
        for observer in self._observers:
            observer.received(event, size)
        return event

    def _write(self, event: events.Event) -> bytes:
        if type(event) not in WRITERS:
            raise LocalProtocolError(f"expected an event that can be sent, got {event!r}")
        side = self._state.sides[self._role]
        for foreign in (side, self._state.sides[self._role.peer]):
            if foreign is Side.FOREIGN:
                raise LocalProtocolError(f"expected nothing to be sent without a common version, got {event!r}")
        frames = WRITERS[type(event)](event)
        for frame in frames:
            if not 0 <= frame.id <= MAX_ID:
                raise LocalProtocolError(f"expected a request id of 1 to {MAX_ID}, got {frame.id}")
            check_header(len(frame.payload), frame.type, frame.id, LocalProtocolError)
        # Only the first frame can be refused, because the others continue it.
        for frame in frames:
            self._account(self._role, FrameType(frame.type), frame, event)
        encoded = encode_frames(frames)
        if side is Side.SILENT:
            self._state.opening(self._role, Opening.PREFACE)
            return PREFACE + encoded
        return encoded

    def _write_refusal(self, event: events.VersionMismatch) -> bytes:
        if self._role is Role.CLIENT or self._state.sides[Role.CLIENT] is not Side.FOREIGN:
            raise LocalProtocolError("expected the client to open with another version before it is refused")
        line = encode_refusal(event.versions)
        self._state.opening(Role.SERVER, Opening.OTHER_VERSION)
        return line
