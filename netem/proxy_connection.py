"""One connection through the proxy: the client's socket, the proxy's socket to the server, and the end of both.

The kernel accepts a client at once, so the proxy emulates the handshake. Bytes that the client sends in the first round
trip are held until its end, and the server gets the connection half a round trip later. After a reset by one side, or a
cut, the other side is reset once it has received the earlier bytes. A socket reads no more than its lane has room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netem.callsites import CallSites
from netem.counter import Counter
from netem.effects import Ending
from netem.link import Link
from netem.units import NANOSECONDS, NEVER

Address = tuple[str, int]

Ends = tuple[Address, Address]
"""The addresses of a connection's client and of its server. A later connection may have the same addresses."""

SLACK = 50_000
"""Nanoseconds by which a parcel may be sent early. They are fewer than one turn of the event loop takes, and save a
timer."""

KERNEL_BUFFER = 64 * 1024
"""Bytes of the receive buffer of a socket on a link with a rate. It must be small, because bytes in it are not on the
link yet. Linux begins with this size, so it can be set after the connection was opened."""

UNSENT = 0x894B
"""The ioctl of Linux (SIOCOUTQNSD) for the number of bytes that a socket has accepted and not sent."""

FLUSHING = 0.005
"""Seconds between two checks whether a socket has sent all its bytes and can be reset."""


@dataclass(frozen=True)
class ConnectionObserver:
    """The callbacks of a connection, which are called on the proxy's thread."""

    ended: Callable[[ProxyConnection], None]
    """The function to call when the connection has ended on both sides."""
    failed: Callable[[BaseException], None]
    """The function to call with the exception after a bug of the proxy."""
    refused: Callable[[OSError], None] | None = None
    """The function to call with the error if the server cannot be reached."""
    accepted: Callable[[int, Ends], None] | None = None
    """The function to call with the number and the client's ends when the connection begins to be counted."""
    established: Callable[[int], None] | None = None
    """The function to call with the number when the handshake is over: the connection is open, or refused."""
    sites: Callable[[int, int], CallSites] | None = None
    """The function to call with the number and a size, which returns the lines that sent the client's next bytes."""


class ProxyConnection:
    """One connection of a client, and the proxy's connection to `upstream` for it."""

    def __init__(
        self, link: Link, upstream: Address, number: int, counter: Counter, told: ConnectionObserver, *, handshake: bool
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.link = link
        self.number = number
        self.counter = counter
        self.over = False
        self._upstream = upstream
        self._told = told
        self._handshake = handshake
        self.client = ProxySocket(self, up=True)
        self.server = ProxySocket(self, up=False)
        self.client.peer, self.server.peer = self.server, self.client
        self._task: asyncio.Task[None] | None = None
        self._opening: Counter | None = counter if handshake else None

    def opened(self) -> ProxySocket:
        """Count the handshake of a client that the kernel has accepted, start to connect to the server, and return the
        client's socket."""
        now = int(self.loop.time() * NANOSECONDS)
        self.counter.opened(self.number, now, handshake=self._handshake)
        if self._handshake:
            self.client.not_before = now + self.link.round_trip
            # A server gets a connection with the third packet, half a round trip after the client.
            self.server.not_before = self.client.not_before + self.link.one_way(up=True)
        self._task = self.loop.create_task(self._connect(now))
        self._task.add_done_callback(self._connected)
        return self.client

    async def _connect(self, begun: int) -> None:
        host, port = self._upstream
        if self._handshake:
            await self._until(begun + self.link.one_way(up=True))
        try:
            await self.loop.create_connection(lambda: self.server, host, port)
        except OSError as error:
            if self._told.refused is not None:
                self._told.refused(error)
            if self._handshake:
                await self._until(begun + self.link.round_trip)
            self._established()
            self.close()

    def _connected(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._told.failed(error)

    def accepted(self) -> None:
        """Report that the client's connection is counted, and schedule the end of its handshake."""
        if self._told.accepted is not None:
            client, here = map(self.client.transport.get_extra_info, ("peername", "sockname"))
            self._told.accepted(self.number, (client[:2], here[:2]))
        self.loop.call_at(self.client.not_before / NANOSECONDS, self._established)

    def _established(self) -> None:
        """Count the end of the handshake in the counter that counted the opening, and report it."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.established(self.number, int(self.loop.time() * NANOSECONDS))
            if self._told.established is not None and self.client.made:
                self._told.established(self.number)

    def sites(self, size: int) -> Callable[[], CallSites] | None:
        """Return a function for the lines that sent the client's next `size` bytes; None if they are unknown."""
        if self._told.sites is None:
            return None
        found = self._told.sites(self.number, size)
        return lambda: found

    async def _until(self, when: int) -> None:
        await asyncio.sleep(max(0.0, when / NANOSECONDS - self.loop.time()))

    def change(self, link: Link) -> None:
        """Replace the link."""
        self.link = link
        self.client.change()
        self.server.change()

    def close(self) -> None:
        """Close both sockets, because both directions have ended or the server cannot be reached."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.close()
        self.check_over()

    def reset(self) -> None:
        """Reset both sockets after a loss of the connection, each as soon as its own bytes are sent."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            end.reset()
        self.check_over()

    def abort(self) -> None:
        """Abort both sockets at once."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
        self._opening = None
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.abort()

    def check_over(self) -> None:
        """Tell the proxy if the connection has ended on both sides."""
        if self.client.lost and (self.server.lost or not self.server.made):
            if not self.server.made and self._task is not None and not self._task.done() and not self.over:
                return  # the client ended before the server was reached, which still gets the client's bytes
            self.over = True
            self._established()  # an observer must hear of this before the end
            self._told.ended(self)


class ProxySocket(asyncio.Protocol):
    """One of the two sockets of a connection. Bytes that it receives enter the lane towards the other socket."""

    transport: asyncio.Transport

    def __init__(self, connection: ProxyConnection, *, up: bool) -> None:
        self._connection = connection
        self._up = up
        self._loop = connection.loop
        self._lane = connection.link.lane(up=up, connection=connection.number)
        self._low = min(connection.link.buffer, connection.link.window) // 2
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._writing = True
        self.made = False
        self.lost = False
        self.ended = False
        """True if this side sends no more: its end of stream has entered the link, or the connection is lost."""
        self.end_delivered = False
        self.not_before = 0
        """The earliest time (ns) at which this socket's bytes count as sent, because of the emulated handshake."""
        self.peer: ProxySocket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Configure the socket, and write the bytes that the other lane held back until this socket existed."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.made = True
        # No buffer in user space: bytes that the socket does not take stay in the lane, where they are counted.
        transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError):  # the peer has reset it already
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fit()
        self.peer.pump()
        if self._up:
            self._connection.accepted()

    def data_received(self, data: bytes) -> None:
        """Put received bytes onto the link."""
        if self._connection.over:  # it is about to be reset
            return
        now = self._now()
        connection = self._connection
        sites = connection.sites(len(data)) if self._up else None
        message = connection.counter.sent(
            connection.number, now, len(data), up=self._up, ended=self.peer.ended, content=data, sites=sites
        )
        self._enter(now, data, Ending.MORE, message)

    def eof_received(self) -> bool:
        """Put the end of the stream onto the link; the other direction stays open."""
        if self._connection.over:
            return True
        now = self._now()
        message = self._connection.counter.sent(
            self._connection.number, now, 0, up=self._up, end=True, ended=self.peer.ended
        )
        self.ended = True
        self._enter(now, b"", Ending.EOF, message)
        return True

    def pause_writing(self) -> None:
        """Stop writing to the socket for now."""
        self._writing = False

    def resume_writing(self) -> None:
        """Write to the socket again."""
        self._writing = True
        # Not at once: asyncio calls this during its own write, where closing would be done twice.
        self._loop.call_soon(self.peer.pump)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the loss of the socket, which is a cut for the other side."""
        self.lost = self.ended = self._writing = True
        if not self._connection.over:
            self._enter(self._now(), b"", Ending.CUT, None)
        self.peer.pump()
        self._connection.check_over()

    def _now(self) -> int:
        return max(int(self._loop.time() * NANOSECONDS), self.not_before)

    def _enter(self, now: int, content: bytes, ending: Ending, message: Any) -> None:
        self._lane.enter(now, content, ending, (self._connection.counter, message))
        self.pump()

    def _fit(self) -> None:
        """On a link with a rate, shrink the kernel's receive buffer. It is never enlarged again."""
        if self._connection.link.rate is not None and self.made and not self.lost:
            with contextlib.suppress(OSError):  # the peer has reset it already
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)

    def change(self) -> None:
        """Use the connection's new link."""
        self._fit()
        self._lane.change(self._now(), self._connection.link)
        self._low = min(self._connection.link.buffer, self._connection.link.window) // 2
        self.pump()

    def pump(self) -> None:
        """Write the parcels that are due, and set a timer for the next one."""
        if self._connection.over:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = int(self._loop.time() * NANOSECONDS)
        lane, peer = self._lane, self.peer
        while peer.made and peer._writing and lane.next_at <= now + SLACK:
            parcel = lane.take()
            if peer.lost:
                continue  # drop it
            counter, message = parcel.tag
            # Count before writing, so that a reader of the bytes finds them counted.
            if message is not None and (parcel.content or parcel.ending is Ending.EOF):
                counter.delivered(message, now)
            if parcel.content:
                peer.transport.write(parcel.content)
            if parcel.ending is not Ending.MORE:
                self._end(parcel.ending)
        when = lane.next_at if peer.made and peer._writing else NEVER
        if self._reading:
            if self.made and not self.lost and not lane.room(now):
                self._reading = False
                self.transport.pause_reading()
        elif lane.room(now) >= self._low and not self.lost:
            self._reading = True
            if not self.ended:
                self.transport.resume_reading()
        if not self._reading:
            when = min(when, lane.next_left(now))
        if when < NEVER:
            self._timer = self._loop.call_at(when / NANOSECONDS, self.pump)

    def _end(self, ending: Ending) -> None:
        self.end_delivered = True
        if ending is Ending.EOF and not self.peer.end_delivered:
            with contextlib.suppress(OSError):  # reset a moment ago: connection_lost comes next
                self.peer.transport.write_eof()
        elif ending is Ending.CUT:
            self._connection.reset()
        else:
            self._connection.close()

    def reset(self) -> None:
        """Reset the socket once it has sent all its bytes, because a reset drops unsent bytes."""
        self.ended = True
        if not self.made or self.lost:
            return
        sock = self.transport.get_extra_info("socket")
        if self.transport.get_write_buffer_size() or unsent(sock):
            if not self._reading:  # only a reading socket notices that the remote end is lost
                self._reading = True
                self.transport.resume_reading()
            self._timer = self._loop.call_later(FLUSHING, self.reset)
            return
        with contextlib.suppress(OSError):  # gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def forget(self) -> None:
        """Discard the bytes that were received and not delivered yet, and cancel the timer."""
        self._lane.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unsent(sock: Any) -> int:
    """Return the number of bytes that the kernel has accepted and not sent; 0 if the connection is lost, or the system
    is not Linux."""
    if sys.platform != "linux":
        return 0
    try:
        sock.getpeername()
        return int.from_bytes(fcntl.ioctl(sock.fileno(), UNSENT, bytes(4)), sys.byteorder)
    except OSError:
        return 0
