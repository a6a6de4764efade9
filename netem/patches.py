"""Patches for the sockets of a running program: methods of their classes are replaced for a time.

The classes are the standard library's, and Twisted's once the program has imported it; this module does not import
Twisted itself. asyncio and Twisted buffer written bytes and send them from their loops. So their `write` methods are
replaced besides those of the socket.
"""

from __future__ import annotations

import asyncio.selector_events
import functools
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any, Protocol

Method = Callable[..., Any]


class Witness(Protocol):
    """An observer of a program's sockets."""

    def connect(self, sock: socket.socket, address: Any, connect: Callable[[Any], Any]) -> Any:
        """Connect a socket of the program, by calling `connect` with an address, and return the result."""

    async def connected(self, sock: socket.socket) -> None:
        """Handle a socket that an asyncio loop has connected. The program continues when this returns."""

    def send(self, sock: socket.socket, send: Callable[[], int]) -> int:
        """Send for the program, by calling `send`. Return the number of bytes that the socket accepted."""

    def write(self, sock: socket.socket, size: int) -> None:
        """Handle a write of `size` bytes to a transport, which sends them through the socket later."""


CONTENT = ("data", "list_of_data", "iovec")
"""The names of the argument with the bytes to send, in methods that accept it by name."""


def size_of(content: Any) -> int:
    """Return the size in bytes of an object with the buffer interface."""
    return memoryview(content).nbytes


def sum_of(contents: Any) -> int:
    """Return the size in bytes of several objects, as `size_of` does for one."""
    return sum(map(size_of, contents))


def _content(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the bytes to send from the arguments of a method that sends."""
    return arguments[0] if arguments else next((named[name] for name in CONTENT if name in named), None)


class Patches:
    """Replaces methods of socket classes by methods that call the witness. `undo` restores the originals."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._before: list[tuple[type, str, Method | None]] = []
        self._twisted = False

    def apply(self) -> None:
        """Replace the methods of the standard library's classes."""
        for name in ("connect", "connect_ex"):
            self._replace(socket.socket, name, self._connecting)
        for kind in (socket.socket, ssl.SSLSocket):
            for name in ("send", "sendmsg", "sendfile"):
                self._replace(kind, name, self._sending)
            self._replace(kind, "sendall", self._sending_all)
        self._replace(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", self._connecting_later)
        transport = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
        self._replace(transport, "write", self._writing("_sock", size_of))
        if "writelines" in vars(transport):  # otherwise it calls `write`
            self._replace(transport, "writelines", self._writing("_sock", sum_of))
        self.look_for_twisted()

    def look_for_twisted(self) -> None:
        """Replace Twisted's methods, too, if the program has imported Twisted by now."""
        module = sys.modules.get("twisted.internet.abstract")
        if module is not None and not self._twisted:
            self._twisted = True
            self._replace(module.FileDescriptor, "write", self._writing("socket", size_of))
            self._replace(module.FileDescriptor, "writeSequence", self._writing("socket", sum_of))

    def undo(self) -> None:
        """Restore the original methods."""
        while self._before:
            kind, name, before = self._before.pop()
            if before is not None:
                setattr(kind, name, before)
            elif name in vars(kind):  # otherwise it was not yet replaced
                delattr(kind, name)  # it was inherited
        self._twisted = False

    def _replace(self, kind: type, name: str, make: Callable[[Method], Method]) -> None:
        method: Method = getattr(kind, name)
        self._before.append((kind, name, vars(kind).get(name)))
        setattr(kind, name, functools.wraps(method)(make(method)))

    def _connecting(self, method: Method) -> Method:
        def connect(sock: socket.socket, address: Any) -> Any:
            return self._witness.connect(sock, address, functools.partial(method, sock))

        return connect

    def _connecting_later(self, method: Method) -> Method:
        async def sock_connect(loop: Any, sock: socket.socket, address: Any) -> None:
            await method(loop, sock, address)
            await self._witness.connected(sock)

        return sock_connect

    def _sending(self, method: Method) -> Method:
        def send(sock: socket.socket, *arguments: Any, **named: Any) -> Any:
            return self._witness.send(sock, lambda: int(method(sock, *arguments, **named)))

        return send

    def _sending_all(self, method: Method) -> Method:
        def sendall(sock: socket.socket, *arguments: Any, **named: Any) -> None:
            def really() -> int:
                method(sock, *arguments, **named)
                return size_of(_content(arguments, named))

            self._witness.send(sock, really)

        return sendall

    def _writing(self, attribute: str, size: Callable[[Any], int]) -> Callable[[Method], Method]:
        def make(method: Method) -> Method:
            def write(transport: Any, *arguments: Any, **named: Any) -> Any:
                sock, content = getattr(transport, attribute, None), _content(arguments, named)
                if isinstance(content, bytes | bytearray | memoryview | list | tuple) and sock is not None:
                    self._witness.write(sock, size(content))
                return method(transport, *arguments, **named)

            return write

        return make
