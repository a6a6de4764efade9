"""The proxy: a TCP relay that puts a link between a client and a server, in wall time, and counts what passes.

Bytes of each direction come out in order at absolute times, so errors do not add up, and what is on the way does not
wait for what is ahead of it (pipelining is kept). A connection costs a handshake: the kernel accepts the client at
once, so what it sends in the first round trip is held until that is over. A reset by one side, like a cut, is a reset
of the other once it has what came out before. TCP's own behaviour over distance (slow
start, Nagle, retransmission) is not there: both sockets are on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from netem.callsites import CallSites
from netem.counter import Counter, Counts
from netem.effects import Effect, Ending
from netem.link import BUFFER, WINDOW, Link
from netem.units import NANOSECONDS, NEVER

SLACK = 50_000
"""Nanoseconds a parcel may come out early: less than one turn of the loop, and it saves arming a timer for it."""

KERNEL_BUFFER = 64 * 1024
"""Receive buffer of the proxy's sockets on a link with a rate: bytes there are on no link yet, so they must be few."""

REFILL = 0.02
"""Seconds of the rate that wait for the link at the least."""

UNSENT = 0x894B
"""Linux: the ioctl (SIOCOUTQNSD) that asks how many bytes a socket took and has not sent."""

FLUSHING = 0.005
"""Seconds between two looks whether a socket has sent what it took, before it is reset."""

THREAD = "netem proxy"
"""The name of a proxy's thread."""

STARTING = 30.0
"""Seconds the thread may take to listen."""


_T = TypeVar("_T")


class ProxyError(Exception):
    """The proxy's own thread failed; what it measured is worth nothing."""


class _Socket(asyncio.Protocol):
    """One of the two sockets of a connection: what it receives goes into its direction's lane, towards the other."""

    transport: asyncio.Transport

    def __init__(self, connection: _Connection, *, up: bool) -> None:
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
        self.peer: _Socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.made = True
        # Nothing in user space: what the socket does not take stays in the lane, where it is counted.
        transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(OSError):  # reset before it was seen
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer.pump()
        if self._up:
            self._connection.accepted()

    def data_received(self, data: bytes) -> None:
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
        if self._connection.over:
            return True
        now = self._now()
        message = self._connection.counter.sent(
            self._connection.number, now, 0, up=self._up, end=True, ended=self.peer.ended
        )
        self.ended = True
        self._enter(now, b"", Ending.EOF, message)
        return True  # keep the other direction open

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        # Not at once: asyncio calls this in the middle of its own writing, where closing would be done twice.
        self._loop.call_soon(self.peer.pump)

    def connection_lost(self, error: Exception | None) -> None:
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

    def change(self) -> None:
        """The connection has another link."""
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
        if self.transport.get_write_buffer_size() or _unsent(sock):
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


def _unsent(sock: Any) -> int:
    """Bytes that the kernel took and has not sent: 0 of a connection that is gone, and where no kernel tells."""
    if sys.platform != "linux":
        return 0
    try:
        sock.getpeername()
        return int.from_bytes(fcntl.ioctl(sock.fileno(), UNSENT, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class _Connection:
    """One connection of the client, and the one made for it to the server."""

    def __init__(self, proxy: Proxy, upstream: tuple[str, int], number: int, counter: Counter) -> None:
        self.loop = asyncio.get_running_loop()
        self.link = proxy.link
        self.number = number
        self.counter = counter
        self.over = False
        self._proxy = proxy
        self._upstream = upstream
        self.client = _Socket(self, up=True)
        self.server = _Socket(self, up=False)
        self.client.peer, self.server.peer = self.server, self.client
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> _Socket:
        """The kernel has accepted a client: charge the handshake and find the server."""
        now = int(self.loop.time() * NANOSECONDS)
        handshake = self._proxy.handshake
        self.counter.opened(self.number, now, handshake=handshake)
        if handshake:
            self.client.not_before = now + self.link.round_trip
            # A server hears of a connection with the third packet, half a round trip after the client does.
            self.server.not_before = self.client.not_before + self.link.one_way(up=True)
        self._task = self.loop.create_task(self._connect(now))
        self._task.add_done_callback(self._proxy._task_done)
        return self.client

    async def _connect(self, begun: int) -> None:
        host, port = self._upstream
        if self._proxy.handshake:
            await self._until(begun + self.link.one_way(up=True))
        try:
            await self._reach(host, port)
        except OSError as error:
            self._proxy._refused(error)
            if self._proxy.handshake:
                await self._until(begun + self.link.round_trip)
            self.close()

    def accepted(self) -> None:
        """The client's end is there, and counted."""
        if self._proxy.on_accepted is not None:
            self._proxy.on_accepted(self.client.transport.get_extra_info("peername"))

    def sites(self, size: int) -> Callable[[], CallSites] | None:
        """Who sent the next `size` bytes of the client, if there is one who knows."""
        if self._proxy.sites is None:
            return None
        found = self._proxy.sites(self.client.transport.get_extra_info("peername"), size)
        return lambda: found

    async def _reach(self, host: str, port: int) -> None:
        if self.link.rate is None:
            await self.loop.create_connection(lambda: self.server, host, port)
            return
        # As create_connection does it, with a small receive buffer from the first packet on.
        refused: OSError = OSError(f"no address for {host!r}")
        for family, kind, protocol, _, address in await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
                await self.loop.sock_connect(sock, address)
                await self.loop.create_connection(lambda: self.server, sock=sock)
            except OSError as error:
                sock.close()
                refused = error
            else:
                return
        raise refused

    async def _until(self, when: int) -> None:
        await asyncio.sleep(max(0.0, when / NANOSECONDS - self.loop.time()))

    def change(self, link: Link) -> None:
        """Go on over another link."""
        self.link = link
        self.client.change()
        self.server.change()

    def close(self) -> None:
        """Both directions have ended, or there is no server: close what is open."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.close()
        self.check_over()

    def reset(self) -> None:
        """The connection is lost: reset what is open, each side as soon as it has what came out for it."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            end.reset()
        self.check_over()

    def abort(self) -> None:
        """Lose both sides now."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.abort()

    def check_over(self) -> None:
        """Tell the proxy when nothing of it is left."""
        if self.client.lost and (self.server.lost or not self.server.made):
            if not self.server.made and self._task is not None and not self._task.done() and not self.over:
                return  # the client is gone before the server was reached: it still gets what was sent
            self.over = True
            self._proxy._ended(self)


class Proxy:
    """A link in front of `upstream` (None: of what `relay` names), on its own thread; use it as a context manager.

    `rtt` is in seconds, `rate` in bytes a second (each way, each connection). Clients connect to `host`, `port`.
    """

    def __init__(
        self,
        rtt: float,
        upstream: tuple[str, int] | None,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        rate: float | None = None,
        up: Sequence[Effect] = (),
        down: Sequence[Effect] = (),
        handshake: bool = True,
        buffer: int | None = None,
        window: int = WINDOW,
        seed: int | str = 0,
        on_operation: Callable[[Counts], None] | None = None,
        on_refused: Callable[[OSError], None] | None = None,
    ) -> None:
        if buffer is None:
            # On a fast link the loop must not come too late to fill it again.
            buffer = max(BUFFER, int((rate or 0) * REFILL))
        self.link = Link(rtt, rate, up, down, buffer, window, seed=seed)
        self.link.check_streams()
        self.upstream = upstream
        self.handshake = handshake
        self.on_accepted: Callable[[tuple[str, int]], None] | None = None
        """Told on the proxy's thread where a client is whose connection is counted from now on."""
        self.sites: Callable[[tuple[str, int], int], CallSites] | None = None
        """Asked on the proxy's thread for all that is received: who sent the next so many bytes of the client there."""
        self.host, self.port = listen
        self._on_operation = on_operation
        self._on_refused = on_refused
        self._counter = Counter()
        self._number = 0
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._listening = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            self.check()

    def start(self) -> None:
        """Listen; `port` is then the real one.

        Raises:
            OSError: it cannot listen there.
        """
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()
        if not self._listening.wait(STARTING):
            raise ProxyError(f"not listening after {STARTING:g} s")
        if isinstance(self._failure, OSError):
            self._thread.join()
            raise self._failure
        self.check()

    def close(self) -> None:
        """Stop listening and close every connection, so that neither side waits for the other. Twice is nothing."""
        if self._thread is None:
            return
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop closed between the two lines
                loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def check(self) -> None:
        """Whether all is well.

        Raises:
            ProxyError: the thread failed.
        """
        if self._failure is not None:
            raise ProxyError(f"the proxy's thread failed: {self._failure!r}") from self._failure

    def change(self, link: Link) -> None:
        """Make it another link from now on, for open connections too; effects that count bytes begin anew.

        What is on the way comes out as it would have; what was held for ever is sent again.

        Raises:
            ValueError: an effect has no meaning for streams.
            ProxyError: the proxy's thread failed.
        """
        link.check_streams()
        self._ask(lambda: self._change(link))

    def _change(self, link: Link) -> None:
        self.link = link
        for connection in list(self._connections):
            if not connection.over:
                connection.change(link)

    def relay(self, upstream: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)) -> tuple[str, int]:
        """Listen for one more server, over the same link and counted together; where its clients connect.

        Raises:
            OSError: it cannot listen there.
            ProxyError: it does not run.
        """
        self.check()
        if self._loop is None or self._loop.is_closed():
            raise ProxyError("the proxy does not run")
        return asyncio.run_coroutine_threadsafe(self._listen(upstream, listen), self._loop).result(STARTING)

    def take(self) -> Counts:
        """The counts since the last `take` (or the start), over all connections; a new operation begins.

        What a client has read is counted. After `close` it gives what was left.

        Raises:
            ProxyError: the proxy's thread failed.
        """
        return self._ask(self._take)

    def counts(self) -> Counts:
        """The counts so far; nothing is begun anew."""
        return self._ask(lambda: self._counter.counts())

    def _ask(self, question: Callable[[], _T]) -> _T:
        self.check()
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive() or thread is threading.current_thread():
            return question()

        async def asked() -> _T:
            return question()

        coroutine = asked()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # closed meanwhile
            coroutine.close()
            return question()
        return future.result(STARTING)

    def _take(self) -> Counts:
        counts = self._counter.counts()
        self._counter = Counter()
        for connection in self._connections:
            connection.counter = self._counter
        return counts

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # the thread's end: told to whoever asks next
            self._failure = error
        finally:
            self._listening.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._loop.set_exception_handler(self._failed)
        if self.upstream is not None:
            _, self.port = await self._listen(self.upstream, (self.host, self.port))
        self._listening.set()
        await self._stop.wait()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # connection_lost of each
        await asyncio.sleep(0)
        if self._on_operation is not None and self._counter.counts().used:
            self._on_operation(self._take())

    async def _listen(self, upstream: tuple[str, int], listen: tuple[str, int]) -> tuple[str, int]:
        host, port = listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        if self.link.rate is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(partial(self._accept, upstream), sock=listener))
        return host, listener.getsockname()[1]

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._failure is None:
            self._failure = error if isinstance(error, BaseException) else RuntimeError(context["message"])
        if self._stop is not None:
            self._stop.set()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(task.get_loop(), {"exception": error})

    def _accept(self, upstream: tuple[str, int]) -> _Socket:
        if self._on_operation is not None and all(c.client.ended for c in self._connections):
            # The client has ended all it had: what it opens now is another operation.
            self._counter = Counter()
        self._number += 1
        connection = _Connection(self, upstream, self._number, self._counter)
        self._connections.add(connection)
        return connection.opened()

    def _refused(self, error: OSError) -> None:
        if self._on_refused is not None:
            self._on_refused(error)

    def _ended(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        counter = connection.counter
        if self._on_operation is not None and all(c.counter is not counter for c in self._connections):
            if counter is self._counter:
                self._counter = Counter()
            self._on_operation(counter.counts())
