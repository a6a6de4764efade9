"""The time a simulated client waited, in round trips: each wait is divided by the RTT that its link had then.

Where connections that were waited on have links of different RTTs side by side, nobody can say which of them a wait was
for, so there is no number.
"""

from __future__ import annotations


class Waiting:
    """The time that the client of one operation waited, in nanoseconds.

    A wait may be inside another one, where a server is a client too: that time is the inner one's alone.
    """

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}  # by the RTT then; summed so, ten waits of 0.1 s are exactly one second
        self._connecting: dict[int, int] = {}
        self._beside: set[int] = set()  # RTTs since the link was changed
        self._mixed = False
        self._open: list[tuple[int, bool]] = []  # the RTT, and whether it is a handshake; the innermost is the last
        self._since = 0

    def begin(self, now: int, rtt: int, *, connecting: bool = False) -> None:
        """The client begins to wait on a connection whose link has this RTT."""
        self.charge(now)
        self._open.append((rtt, connecting))
        self._note(rtt)

    def end(self, now: int) -> None:
        """The innermost wait is over."""
        self.charge(now)
        self._open.pop()

    def charge(self, now: int) -> None:
        """Count what was waited until now."""
        if self._open:
            rtt, connecting = self._open[-1]
            self._waited[rtt] = self._waited.get(rtt, 0) + now - self._since
            if connecting:
                self._connecting[rtt] = self._connecting.get(rtt, 0) + now - self._since
        self._since = now

    def change(self, now: int, rtt: int) -> None:
        """All open connections have another link, in the middle of a wait too; a handshake under way keeps its own."""
        self.charge(now)
        self._beside.clear()
        for place, (_, connecting) in enumerate(self._open):
            if not connecting:
                self._open[place] = rtt, False
                self._note(rtt)

    def rest(self, now: int) -> Waiting:
        """Begin another operation, with the time that is waited from now on: open waits continue there."""
        self.charge(now)
        rest = Waiting()
        for rtt, connecting in self._open:
            rest.begin(now, rtt, connecting=connecting)
        return rest

    def _note(self, rtt: int) -> None:
        self._beside.add(rtt)
        self._mixed = self._mixed or len(self._beside) > 1

    def rounds(self, rtt: int) -> tuple[float | None, float | None]:
        """Round trips, with connecting and without; None where links were mixed, and on one without delay, which `rtt`
        says where nothing was waited for."""
        if self._mixed or not all(self._waited or [rtt]):
            return None, None
        return (
            sum((waited / each for each, waited in self._waited.items()), 0.0),
            sum(((waited - self._connecting.get(each, 0)) / each for each, waited in self._waited.items()), 0.0),
        )
