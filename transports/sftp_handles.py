"""`Handles`: which handle a server gives next, so that a file is opened, read and closed in one flight.

SFTP has no request that opens a file and reads it. The answer to the first request says a handle, and the second one
names it: two round trips for each file. But OpenSSH's server numbers handles by a simple rule (`handle_new` in its
sftp-server.c): the next one is the one that was closed last, else the next number. So the requests that follow an
opening can be sent with it, under the handle that it will have.

The rules:

- A prediction is made only where no request is unanswered that opens or closes something, in a session whose server
  says that it is OpenSSH's. After one answer that is not as predicted, none is made any more.
- So a predicted handle is one that is not open. A request under it does something only if the handle is given to the
  file that was opened just before: a server does what it is sent in that order (draft, 6.1). Where the file could not
  be opened, or was given another handle, the requests that follow are refused. They write nothing anywhere.
- They count only if the answer to the opening has the predicted handle. Else they are sent again, under the handle
  that was given, in a flight of their own. Nothing is lost but the trip that would have been saved.
- Nothing is written under a predicted handle before one prediction of this session was right.
- The last of them is a close. So the files of a flight have the same handle, one after the other, whether the others
  are there or not. Only a large file, whose opening nothing follows, keeps its handle, and those behind it get others.
- An opening and all that follow it are sent together (`Session.exchange`), or none of those that follow. A folder would
  be read on behind the names that came, and a sync that failed would be tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from transports.sftp_packets import Answer, Code, Following, Handle, Request, Status

SIZE = 4
"""Bytes of a handle of OpenSSH's server: a number."""


class Handles:
    """The handles of one session; whoever calls it holds the lock under which its requests are numbered."""

    def __init__(self, *, predictable: bool) -> None:
        """`predictable`: the server is OpenSSH's."""
        self._predictable = predictable
        self._proved = False
        """One prediction was right."""
        self._closed: list[bytes] = []
        """Handles that were given and are closed, the last one last."""
        self._count = 0
        """The most that were ever open at once, which is the number of a new one."""
        self._unanswered = 0
        """Requests that open or close something, and have no answer yet."""

    def fill(self, requests: Sequence[Request | Following]) -> list[Request | None]:
        """The requests as they are to be sent together; None for one that is not."""
        closed, count = list(self._closed), self._count
        predicts = self._predictable and not self._unanswered
        handle: bytes | None = None
        filled: list[Request | None] = []
        for request in requests:
            sent: Request | None
            if not isinstance(request, Following):
                sent = request
            elif handle is None or (request.changes and not self._proved):
                sent = None
            else:
                sent = request.make(handle)
            filled.append(sent)
            if sent is not None and predicts and sent.opens:
                handle = closed.pop() if closed else _new(count)
                count = max(count, int.from_bytes(handle) + 1)
            elif sent is not None and sent.closes:
                closed.append(sent.closes)
            self._unanswered += sent is not None and bool(sent.opens or sent.closes)
        return filled

    def answered(self, request: Request, answer: Answer) -> None:
        """Learn from an answer; they come in the order in which the server did what it was sent."""
        if not (request.opens or request.closes):
            return
        self._unanswered -= 1
        if isinstance(answer, Handle) and self._predictable:
            expected = self._closed.pop() if self._closed else _new(self._count)
            self._count = max(self._count, int.from_bytes(expected) + 1)
            self._proved = self._predictable = answer.handle == expected
        elif request.closes and self._predictable and isinstance(answer, Status) and answer.code == Code.OK:
            self._closed.append(request.closes)


def _new(number: int) -> bytes:
    """The handle that was never given before."""
    return number.to_bytes(SIZE)
