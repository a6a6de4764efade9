"""Spans: a span is a named period of work in one thread, which the thread's listener records.

Spans of one thread nest, and each ends before the one around it. Without a listener, a span costs 0.3 microseconds.
Work of less than ten microseconds should have no span.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from typing import ParamSpec, Protocol, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

    class Listener(Protocol):
        """Records spans."""

        def began(self, part: Part, name: str) -> None:
            """Called when a span begins, inside the spans that are open."""

        def ended(self) -> None:
            """Called when the span that began last ends."""

        def measured(self, connection: socket.socket) -> None:
            """Called with a TCP connection that will be closed or passed to another process."""


class Part(enum.StrEnum):
    """The kind of work in a span."""

    START = "start"
    """The system and Python start the program, until our code runs."""
    CONNECT = "connect"
    """The host name is resolved, a connection by TCP, TLS or ssh is opened, or the agent is asked for one."""
    LOCAL = "local"
    """Work on this machine, which the span names."""
    SEND = "send"
    """The client writes bytes to the connection, or waits because the connection accepts no more."""
    LINK = "link"
    """The program waits for bytes of the peer."""
    RECEIVE = "receive"
    """Received bytes are read from the connection."""
    QUEUED = "queued"
    """The server has the request, but no free thread for it."""
    DISK = "disk"
    """Files are read, written or synced."""
    SERVER = "server"
    """Work of the server, which the span names."""


class _Here(threading.local):
    """The listener of the calling thread."""

    listener: Listener | None = None


_here = _Here()


class span:  # It is used as a function.
    """A context manager that records the time of its block as a span. `part`: the kind of work. `name`: the work in
    more detail."""

    __slots__ = ("_listener", "_name", "_part")

    def __init__(self, part: Part, name: str = "") -> None:
        self._part = part
        self._name = name
        self._listener = _here.listener

    def __enter__(self) -> None:
        if self._listener is not None:
            self._listener.began(self._part, self._name)

    def __exit__(self, *_exc: object) -> None:
        if self._listener is not None:
            self._listener.ended()


def spans_of(part: Part, name: str, items: Iterable[T]) -> Iterator[T]:
    """Yield the items of an iterable. The time to generate each item is recorded as a span."""
    iterator = iter(items)
    while True:
        with span(part, name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def spent(part: Part, name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that records each call of a function as a span."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def inner(*arguments: P.args, **named: P.kwargs) -> T:
            with span(part, name):
                return function(*arguments, **named)

        return inner

    return decorate


def measured(connection: socket.socket) -> None:
    """Let the listener measure a TCP connection whose use ends here."""
    listener = _here.listener
    if listener is not None:
        listener.measured(connection)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report the spans of this thread to a listener within the context."""
    before, _here.listener = _here.listener, listener
    try:
        yield
    finally:
        _here.listener = before
