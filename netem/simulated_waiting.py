"""The time a simulated client waited, in round trips: each wait is divided by the RTT that its link had then.

Where connections that were waited on have links of different RTTs side by side, nobody can say which of them a wait was
for, so there is no number.
"""

from __future__ import annotations


class Waiting:
    """What the client of one operation waited; times are nanoseconds."""

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}  # by the RTT then; summed so, ten waits of 0.1 s are exactly one second
        self._connecting: dict[int, int] = {}
        self._beside: set[int] = set()  # RTTs since the link was changed
        self._mixed = False
        self._begun: tuple[int, int, bool] | None = None

    def begin(self, now: int, rtt: int, *, connecting: bool = False) -> None:
        """The client begins to wait on a connection whose link has this RTT."""
        self._begun = now, rtt, connecting
        self._beside.add(rtt)
        self._mixed = self._mixed or len(self._beside) > 1

    def end(self, now: int) -> None:
        """It goes on."""
        assert self._begun is not None
        (begun, rtt, connecting), self._begun = self._begun, None
        self._waited[rtt] = self._waited.get(rtt, 0) + now - begun
        if connecting:
            self._connecting[rtt] = self._connecting.get(rtt, 0) + now - begun

    def change(self, now: int, rtt: int) -> None:
        """All open connections have another link, in the middle of a wait too; a handshake under way keeps its own."""
        self._beside.clear()
        if self._begun is not None and not self._begun[2]:
            self.end(now)
            self.begin(now, rtt)

    def rounds(self, rtt: int) -> tuple[float | None, float | None]:
        """Round trips, with connecting and without; None where links were mixed, and on one without delay, which `rtt`
        says where nothing was waited for."""
        if self._mixed or not all(self._waited or [rtt]):
            return None, None
        return (
            sum((waited / each for each, waited in self._waited.items()), 0.0),
            sum(((waited - self._connecting.get(each, 0)) / each for each, waited in self._waited.items()), 0.0),
        )
