"""The limits of one request, and a flag that is set when its client has disconnected.

The problem: a few bytes can ask for minutes of work. The rule: every loop over data of the client or of the repository
charges its steps to the request's `Allowance`. An allowance limits steps and decoded bytes. Both limits grow with the
bytes that the client sent and with what is stored. A charge beyond a limit ends the request with `LimitExceeded`. A
charge after the client has disconnected ends it with `Cancelled`.
"""

from __future__ import annotations

import sys
from typing import Final

from smartserver.errors import Cancelled, LimitExceeded

STEPS: Final = 1 << 20
"""Steps that every request may take: half a second to three seconds of work. A step is a revision, parent, record,
entry or page."""

STEPS_OF_BYTE: Final = 4
"""Further steps for each byte that the client sent. The history measured in doc/design/0013 takes 0.05."""

STEPS_OF_STORED: Final = 8
"""Further steps for each revision and parent of the repository. A pull walks the graph once or twice, a comparison of
histories twice, a push once for each branch that does not move forward."""

STEPS_OF_RECORD: Final = 64
"""Further steps for each record of the repository, for a request that reads content. A log with changes reads some
trees again for each merge."""

DECODED: Final = 1 << 30
"""Bytes that the server may decode for every request: four files of `records.limits.MAX_TAKEN`."""

DECODED_OF_BYTE: Final = 1024
"""Further decoded bytes for each byte that the client sent. The history measured in doc/design/0013 needs 95; one
commit in a folder of 20,000 files sends 300 bytes and decodes 800 KB, twice."""

DECODED_OF_STORED: Final = 4096
"""Further decoded bytes for each byte of the packs, for a request that reads content. A log with changes decodes each
manifest of a history, some twice. On the disk a manifest may take a thousandth of its size."""

CHECK: Final = 4096
"""The most steps, a millisecond of work, that a loop may take before it charges them."""


class Allowance:
    """The limits of one request, and what it has used of them. One thread at a time may charge it; any thread may
    cancel it."""

    __slots__ = (
        "_limited", "_most_decoded", "_most_steps", "_records", "_sent", "_size", "_stored", "cancelled", "decoded",
        "steps",
    )  # fmt: skip

    def __init__(self, *, limited: bool = True) -> None:
        """`limited`: False for work that no remote client requested. Such work has no limits, but can be cancelled."""
        self.cancelled = False
        """True once no client waits for the work."""
        self._limited = limited
        self._sent = 0
        self._stored = 0
        self._records = 0
        self._size = 0
        self.steps = 0
        self.decoded = 0
        self._set_limits()

    def __call__(self) -> None:
        """Raise Cancelled if no client waits for the work."""
        if self.cancelled:
            raise Cancelled

    def came(self, size: int) -> None:
        """Count bytes that the client sent."""
        self._sent += size
        self._set_limits()

    def rests_on(self, stored: int) -> None:
        """Note that the repository has at least `stored` revisions and parents."""
        self._stored = max(self._stored, stored)
        self._set_limits()

    def reads(self, records: int, size: int) -> None:
        """Note that the request may read the content of `records` records, which have `size` bytes in the packs."""
        self._records, self._size = records, size
        self._set_limits()

    def _set_limits(self) -> None:
        """Compute both limits in advance, so that a charge takes only half a microsecond."""
        of_records = STEPS_OF_RECORD * self._records
        self._most_steps = STEPS + STEPS_OF_BYTE * self._sent + STEPS_OF_STORED * self._stored + of_records
        self._most_decoded = DECODED + DECODED_OF_BYTE * self._sent + DECODED_OF_STORED * self._size
        if not self._limited:
            self._most_steps = self._most_decoded = sys.maxsize

    def restart(self) -> None:
        """Reset the charges, because the same work is done again for a reason that the client did not cause."""
        self.steps = self.decoded = 0

    @property
    def room(self) -> tuple[int, int]:
        """The number of bytes that may still be decoded, and the number of steps that may still be taken."""
        return max(self._most_decoded - self.decoded, 0), max(self._most_steps - self.steps, 0)

    def charge(self, steps: int) -> None:
        """Charge steps."""
        if self.cancelled:
            raise Cancelled
        self.steps += steps
        if self.steps > self._most_steps:
            raise LimitExceeded("steps of work for one request", self.steps, self._most_steps)

    def decode(self, size: int) -> None:
        """Charge bytes that are about to be decoded."""
        if self.cancelled:
            raise Cancelled
        self.decoded += size
        if self.decoded > self._most_decoded:
            raise LimitExceeded("decoded bytes of one request", self.decoded, self._most_decoded)
