"""One of the two sockets of a connection through the proxy: when what it received comes out of the other one.

It reads no more than its lane has room for, and is reset only when it has sent what came out for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from netem.effects import Ending
from netem.units import NANOSECONDS, NEVER

if TYPE_CHECKING:
    from netem.proxy_connection import ProxyConnection

SLACK = 50_000
"""Nanoseconds a parcel may come out early: less than one turn of the loop, and it saves arming a timer for it."""

KERNEL_BUFFER = 64 * 1024
"""Receive buffer of a socket on a link with a rate: bytes there are on no link yet, so they must be few. Linux begins
with as much, so it is early enough to set it once there is a connection."""

UNSENT = 0x894B
"""Linux: the ioctl (SIOCOUTQNSD) that asks how many bytes a socket took and has not sent."""

FLUSHING = 0.005
"""Seconds between two looks whether a socket has sent what it took, before it is reset."""


class ProxySocket(asyncio.Protocol):
    """One of the two sockets of a connection: what it receives goes into its direction's lane, towards the other."""

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
        """It sends no more: its end of stream has entered the link, or it is gone."""
        self.end_delivered = False
        self.not_before = 0
        """What it sends earlier counts as sent then: connections are made late here."""
        self.peer: ProxySocket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there: tell the lane, which may have waited for it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.made = True
        # Nothing in user space: what the socket does not take stays in the lane, where it is counted.
        transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError):  # reset before it was seen
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fit()
        self.peer.pump()
        if self._up:
            self._connection.accepted()

    def data_received(self, data: bytes) -> None:
        """Bytes enter the link."""
        if self._connection.over:  # it is going to be reset
            return
        now = self._now()
        connection = self._connection
        sites = connection.sites(len(data)) if self._up else None
        message = connection.counter.sent(
            connection.number, now, len(data), up=self._up, ended=self.peer.ended, content=data, sites=sites
        )
        self._enter(now, data, Ending.MORE, message)

    def eof_received(self) -> bool:
        """The end of its stream enters the link; the other direction stays open."""
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
        """It takes no more for now."""
        self._writing = False

    def resume_writing(self) -> None:
        """It takes more."""
        self._writing = True
        # Not at once: asyncio calls this in the middle of its own writing, where closing would be done twice.
        self._loop.call_soon(self.peer.pump)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone, which the other side hears as a cut."""
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
        """Let little wait in the kernel on a link with a rate; what was made small once stays so."""
        if self._connection.link.rate is not None and self.made and not self.lost:
            with contextlib.suppress(OSError):  # reset before it was seen
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)

    def change(self) -> None:
        """The connection has another link."""
        self._fit()
        self._lane.change(self._now(), self._connection.link)
        self._low = min(self._connection.link.buffer, self._connection.link.window) // 2
        self.pump()

    def pump(self) -> None:
        """Let come out what is due, and see to it that this runs again when the next is."""
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
                continue  # to nobody
            counter, message = parcel.tag
            # Counted before it is written: who has read it finds it counted.
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
        """Reset it, once it has sent what it took: a reset throws away the rest."""
        self.ended = True
        if not self.made or self.lost:
            return
        sock = self.transport.get_extra_info("socket")
        if self.transport.get_write_buffer_size() or unsent(sock):
            if not self._reading:  # else it would not be told of the other's end
                self._reading = True
                self.transport.resume_reading()
            self._timer = self._loop.call_later(FLUSHING, self.reset)
            return
        with contextlib.suppress(OSError):  # gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def forget(self) -> None:
        """Drop what is on the way."""
        self._lane.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unsent(sock: Any) -> int:
    """Bytes that the kernel took and has not sent: 0 of a connection that is gone, and where no kernel tells."""
    if sys.platform != "linux":
        return 0
    try:
        sock.getpeername()
        return int.from_bytes(fcntl.ioctl(sock.fileno(), UNSENT, bytes(4)), sys.byteorder)
    except OSError:
        return 0
