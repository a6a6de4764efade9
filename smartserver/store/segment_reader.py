"""`SegmentReader`: the bytes of segments as they lie in several packs, one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from smartserver.store import far
from smartserver.store.open_pack import OpenPack


class SegmentReader:
    """The bytes of ranges of segments as they lie, front to back; for one thread at a time."""

    def __init__(self, runs: Iterable[tuple[OpenPack, int, int]], segments: int) -> None:
        """`runs`: a pack, and the offsets where the run begins and ends."""
        self.segments = segments
        """In all."""
        self._runs = list(runs)
        self._runs.reverse()
        self.size = sum(stop - start for _, start, stop in self._runs)
        """Bytes in all."""
        self.left = self.size
        """Bytes not read yet."""
        self._far = any(pack.far for pack, _, _ in self._runs)
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end; then empty.

        Raises:
            NoSuchFile: a pack not opened before is gone.
            CorruptFile: a pack became shorter.
        """
        wanted = min(size, self.left)
        self.left -= wanted
        if len(self._ahead) < wanted:
            more = self._read(max(wanted - len(self._ahead), far.AT_ONCE if self._far else 0))
            self._ahead = self._ahead + more if self._ahead else more
        # Where it is all of them, the slice is no copy.
        read, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        return read

    def _read(self, size: int) -> bytes:
        """The next `size` bytes of the packs, or fewer at the end."""
        wanted = []
        while size and self._runs:
            pack, start, stop = self._runs.pop()
            taken = min(size, stop - start)
            wanted.append((pack.reader, start, taken))
            size -= taken
            if start + taken < stop:
                self._runs.append((pack, start + taken, stop))
        pieces = far.read_across(wanted)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
