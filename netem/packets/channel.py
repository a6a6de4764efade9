"""Messages between the processes of one network, optionally with descriptors.

They are pickled: both ends are this package, on a socket that no other program can open. If the other process has
ended, a send raises `OSError`, and other calls `EOFError`."""

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
        """Return the two ends of a new channel."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """Return the end with a descriptor that this process inherited or received."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the descriptor of this end."""
        return self._end.fileno()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the receiver gets copies of the descriptors."""
        content = pickle.dumps(message)
        socket.send_fds(self._end, [_HEAD.pack(len(content), len(descriptors))], descriptors)
        self._end.sendall(content)

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message and its descriptors."""
        try:
            return self._receive()
        except ConnectionError as error:  # the other process ended with unread messages
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
        """Send a request. Return the answer and its descriptors; raise the answer if it is an exception."""
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
