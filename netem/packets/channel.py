"""Messages between the processes of one network, with descriptors where one goes along.

Pickled: both ends are this package, on a socket that nobody else can open. Where the other process is gone a send
raises `OSError`, all else `EOFError`."""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

_HEAD = struct.Struct("=II")
_MOST_DESCRIPTORS = 8


class Channel:
    """One end of a connected pair of stream sockets."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two ends."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """The end that another process left open, or sent."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Its descriptor."""
        return self._end.fileno()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the receiver gets copies of the descriptors."""
        content = pickle.dumps(message)
        socket.send_fds(self._end, [_HEAD.pack(len(content), len(descriptors))], descriptors)
        self._end.sendall(content)

    def receive(self) -> tuple[Any, list[int]]:
        """The next message and its descriptors."""
        try:
            return self._receive()
        except ConnectionError as error:  # what it did not read was lost with it
            raise EOFError("the other process is gone") from error

    def _receive(self) -> tuple[Any, list[int]]:
        head, descriptors, _, _ = socket.recv_fds(self._end, _HEAD.size, _MOST_DESCRIPTORS)
        try:
            if len(head) != _HEAD.size:
                raise EOFError("the other process is gone")
            size, number = _HEAD.unpack(head)
            content = bytearray()
            while len(content) < size:
                piece = self._end.recv(size - len(content))
                if not piece:
                    raise EOFError("the other process is gone")
                content += piece
            if number != len(descriptors):
                raise OSError(f"{len(descriptors)} of {number} descriptors came: too many are open")
            return pickle.loads(content), descriptors
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def ask(self, question: str, *arguments: Any, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """Send a question; its answer, and descriptors that came with it. An exception for an answer is raised."""
        try:
            self.send((question, *arguments), descriptors)
            answer, given = self.receive()
        except ConnectionError as error:
            raise EOFError("the other process is gone") from error
        if isinstance(answer, Exception):
            raise answer
        return answer, given

    def close(self) -> None:
        """Close this end."""
        self._end.close()
