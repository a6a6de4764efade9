"""`Handles`: predict the handle that a server gives next, so that a file is opened, read and closed in one flight.

SFTP has no request that opens a file and reads it. The answer to the opening has a handle, and the read must name it:
two round trips for each file. But OpenSSH's server numbers handles by a simple rule (`handle_new` in its
sftp-server.c): the next handle is the one that was closed last, else the next number. So the requests that follow an
opening can be sent together with the opening, under the predicted handle.

The rules:

- A handle is predicted only while no request that opens or closes a handle is unanswered, in a session whose server
  says that it is OpenSSH's. After one wrong prediction, no more are made.
- So a predicted handle is one that is not open. A request under it has an effect only if the handle is given to the
  file that was opened just before, since a server performs requests in order (draft, 6.1). If the file could not be
  opened, or got another handle, the server refuses the requests that follow. They write nothing anywhere.
- The answers count only if the answer to the opening has the predicted handle. Otherwise the requests are sent again,
  under the given handle, in a flight of their own. Only the saved round trip is lost.
- No write is sent under a predicted handle before one prediction of this session was right.
- The last request after an opening is a close. So the files of a flight have the same handle, one after the other, even
  if some are missing. Only a large file, which is opened alone, keeps its handle; the files after it get another one.
- Either all requests that follow an opening are sent with it (`Session.exchange`), or none. Otherwise a folder would
  be read on after its first names, and a failed sync would be retried.
"""

from __future__ import annotations

from collections.abc import Sequence

from transports.sftp_packets import Answer, Code, Following, Handle, Request, Status

SIZE = 4
"""The size in bytes of a handle of OpenSSH's server. The handle is a big-endian number."""


class Handles:
    """Predicts the handles of one session. The caller must hold the lock under which the session numbers requests."""

    def __init__(self, *, predictable: bool) -> None:
        """`predictable`: True if the server identifies itself as OpenSSH, whose handles can be predicted."""
        self._predictable = predictable
        self._proved = False
        """True if the newest prediction was right."""
        self._closed: list[bytes] = []
        """Handles that are closed, in the order of closing."""
        self._count = 0
        """The number of handles that the server has used so far, which is the number of the next new one."""
        self._unanswered = 0
        """The number of unanswered requests that open or close a handle."""

    def fill(self, requests: Sequence[Request | Following]) -> list[Request | None]:
        """Return the requests to send together, with predicted handles filled in. A request that cannot be sent is
        None."""
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
        """Process the next answer, to update the prediction. Answers must be passed in the order in which the server
        performed the requests."""
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
    """Return the handle with that number."""
    return number.to_bytes(SIZE)
