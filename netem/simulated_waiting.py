"""The time that a simulated client waited, in round trips: each wait is divided by the RTT of its link at that time.

If the client waits on connections whose links have different RTTs at the same time, a wait belongs to no single link.
Then there is no number.
"""

from __future__ import annotations


class Waiting:
    """The time that the client of one operation waited, in nanoseconds. If a server is a client too, a wait may be
    nested in another. Its time counts only for the inner wait."""

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}  # by RTT; as whole numbers, ten waits of 0.1 s are exactly one second
        self._connecting: dict[int, int] = {}
        self._beside: set[int] = set()  # the RTTs of all waits since the link was replaced
        self._mixed = False
        self._open: list[tuple[int, bool]] = []  # (RTT, is a handshake) of each wait, the innermost last
        self._since = 0

    def begin(self, now: int, rtt: int, *, connecting: bool = False) -> None:
        """Begin a wait on a connection whose link has this RTT."""
        self.charge(now)
        self._open.append((rtt, connecting))
        self._note(rtt)

    def end(self, now: int) -> None:
        """End the innermost wait."""
        self.charge(now)
        self._open.pop()

    def charge(self, now: int) -> None:
        """Add the time since the last call to the innermost wait."""
        if self._open:
            rtt, connecting = self._open[-1]
            self._waited[rtt] = self._waited.get(rtt, 0) + now - self._since
            if connecting:
                self._connecting[rtt] = self._connecting.get(rtt, 0) + now - self._since
        self._since = now

    def change(self, now: int, rtt: int) -> None:
        """Replace the RTT of all open connections by `rtt`, even during waits. A handshake in progress keeps its
        RTT."""
        self.charge(now)
        self._beside.clear()
        for place, (_, connecting) in enumerate(self._open):
            if not connecting:
                self._open[place] = rtt, False
                self._note(rtt)

    def rest(self, now: int) -> Waiting:
        """Return the waiting time of a new operation, in which the open waits continue."""
        self.charge(now)
        rest = Waiting()
        for rtt, connecting in self._open:
            rest.begin(now, rtt, connecting=connecting)
        return rest

    def _note(self, rtt: int) -> None:
        self._beside.add(rtt)
        self._mixed = self._mixed or len(self._beside) > 1

    def rounds(self, rtt: int) -> tuple[float | None, float | None]:
        """Return the round trips with and without handshakes. They are None if RTTs were mixed, or an RTT was 0. `rtt`:
        the link's RTT, which is used if there was no wait."""
        if self._mixed or not all(self._waited or [rtt]):
            return None, None
        return (
            sum((waited / each for each, waited in self._waited.items()), 0.0),
            sum(((waited - self._connecting.get(each, 0)) / each for each, waited in self._waited.items()), 0.0),
        )
