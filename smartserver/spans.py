"""Spans of time: code names what it spends time on, and whoever listens records it.

Spans of one thread nest, and each ends before the one around it. Without a listener a span costs 0.3 microseconds. What
takes less than ten is not worth one.
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
            """A span begins, inside of those that have not ended."""

        def ended(self) -> None:
            """The one that began last ends."""

        def measured(self, connection: socket.socket) -> None:
            """A connection over TCP is going to be closed, or given to another process."""


class Part(enum.StrEnum):
    """The kind of work that a part of a wait is spent on."""

    START = "start"
    """The system and Python start the program, until code of ours runs."""
    CONNECT = "connect"
    """The name is looked up, TCP, TLS or ssh connects, the agent is asked."""
    LOCAL = "local"
    """Work on this machine, which the span names."""
    SEND = "send"
    """The connection takes no more bytes yet, or is being handed some."""
    LINK = "link"
    """Nothing to do until something comes."""
    RECEIVE = "receive"
    """Bytes that came are taken from the connection."""
    QUEUED = "queued"
    """A server has the request and no thread for it."""
    DISK = "disk"
    """Files are read, written, synced."""
    SERVER = "server"
    """Work of the server, which the span names."""


class _Here(threading.local):
    """The listener and open spans of the calling thread."""

    listener: Listener | None = None


_here = _Here()


class span:  # It is used as a function.
    """A context that spends its time on `part`; `name` says more."""

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
    """The same items; to make each of them is a span."""
    iterator = iter(items)
    while True:
        with span(part, name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def spent(part: Part, name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: a call of the function is a span."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def inner(*arguments: P.args, **named: P.kwargs) -> T:
            with span(part, name):
                return function(*arguments, **named)

        return inner

    return decorate


def measured(connection: socket.socket) -> None:
    """Have the listener look at a connection over TCP that ends here."""
    listener = _here.listener
    if listener is not None:
        listener.measured(connection)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a listener told of the spans of this thread."""
    before, _here.listener = _here.listener, listener
    try:
        yield
    finally:
        _here.listener = before
