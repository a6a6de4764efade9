"""The duties of a medium, as tests to inherit: run them on each carrier of bytes.

    class TestMine(MediumSuite):
        @pytest.fixture
        def connect(self):
            return lambda peer: MyMedium(...)       # to one that behaves as that peer

At the other end somebody behaves as a `Peer`; for one with file descriptors `play` does.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
from collections.abc import Callable

import pytest

from smartserver.client.medium import ConnectionLost, Medium

PATIENCE = 30.0
"""Seconds after which a medium that should be ready counts as stuck."""

TEXT = b"some text, and then no more"

BLOCK = 1 << 16
"""Bytes handled at once."""

MOST = 1 << 26
"""Bytes after which a medium whose peer takes none should have had enough."""


class Peer(enum.Enum):
    """The behaviour of the other end."""

    ECHOES = "echoes"
    """Sends back what comes, until no more comes."""
    SAYS_TEXT = "says text"
    """Sends `TEXT` and ends."""
    TAKES_NOTHING = "takes nothing"
    """Reads and says nothing, until the connection is closed, at either end."""
    BREAKS_OFF = "breaks off"
    """Sends back what comes first, and is gone, as a process that is killed."""


def play(peer: Peer, reading: int, writing: int) -> None:
    """Behave so on two file descriptors (or one twice); whoever calls closes them then."""
    if peer is Peer.TAKES_NOTHING:
        waiting = select.poll()
        waiting.register(reading, getattr(select, "POLLRDHUP", 0))
        waiting.poll()
        return
    if peer is Peer.SAYS_TEXT:
        os.write(writing, TEXT)
        return
    while received := os.read(reading, BLOCK):
        left = memoryview(received)
        while left:
            left = left[os.write(writing, left) :]
        if peer is Peer.BREAKS_OFF:
            return


def read_all(medium: Medium, size: int) -> bytes:
    """So many bytes, as they come."""
    got = b""
    while len(got) < size:
        assert medium.poll(read=True, write=False, timeout=PATIENCE) == (True, False)
        more = medium.read(size - len(got))
        assert 0 < len(more) <= size - len(got)
        got += more
    return got


def write_all(medium: Medium, text: bytes) -> None:
    """All of it, as it is taken."""
    left = memoryview(text)
    while left:
        assert medium.poll(read=False, write=True, timeout=PATIENCE) == (False, True)
        taken = medium.write_some(left)
        assert 0 < taken <= len(left)
        left = left[taken:]


class MediumSuite:
    """The promises of `smartserver.client.medium`."""

    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        """A function that makes the medium under test, to such a peer; the suite closes it."""
        raise NotImplementedError("a suite's subclass gives the medium under test")

    def test_bytes_go_both_ways(self, connect: Callable[[Peer], Medium]) -> None:
        """Written bytes come back, in parts of any size."""
        with contextlib.closing(connect(Peer.ECHOES)) as medium:
            write_all(medium, b"question")
            assert read_all(medium, 3) == b"que"
            assert read_all(medium, 5) == b"stion"
            for text in (b"x", b"0123456789" * 300):
                write_all(medium, text)
                assert read_all(medium, len(text)) == text

    def test_nothing_is_there_to_read_before_anything_comes(self, connect: Callable[[Peer], Medium]) -> None:
        """And waiting for it ends in time; writing is possible meanwhile."""
        with contextlib.closing(connect(Peer.ECHOES)) as medium:
            assert medium.poll(read=True, write=False, timeout=0.01) == (False, False)
            assert medium.poll(read=True, write=True, timeout=PATIENCE) == (False, True)
            assert medium.poll(read=False, write=False, timeout=0) == (False, False)

    def test_reading_waits_for_the_first_byte(self, connect: Callable[[Peer], Medium]) -> None:
        """Whoever reads without asking gets at least one."""
        with contextlib.closing(connect(Peer.ECHOES)) as medium:
            write_all(medium, b"x")
            assert medium.read(100) == b"x"

    def test_the_end_is_no_error(self, connect: Callable[[Peer], Medium]) -> None:
        """A peer that sends no more is read to its end, which stays the end."""
        with contextlib.closing(connect(Peer.SAYS_TEXT)) as medium:
            assert read_all(medium, len(TEXT)) == TEXT
            for _ in range(2):
                assert medium.poll(read=True, write=False, timeout=PATIENCE) == (True, False)
                assert medium.read(10) == b""

    def test_only_what_fits_is_taken(self, connect: Callable[[Peer], Medium]) -> None:
        """Writing does not wait for a peer that reads nothing; `poll` says that there is no room."""
        with contextlib.closing(connect(Peer.TAKES_NOTHING)) as medium:
            block, taken = memoryview(bytes(BLOCK)), 0
            while some := medium.write_some(block):
                taken += some
                assert taken < MOST, "a peer that reads nothing took all of it"
            assert medium.poll(read=True, write=True, timeout=0) == (False, False)

    def test_both_directions_at_once(self, connect: Callable[[Peer], Medium]) -> None:
        """More than fits on the way comes back, to one who reads while he writes."""
        text = bytes(range(256)) * 8192
        with contextlib.closing(connect(Peer.ECHOES)) as medium:
            left, got = memoryview(text), bytearray()
            while len(got) < len(text):
                readable, writable = medium.poll(read=True, write=bool(left), timeout=PATIENCE)
                assert readable or writable
                if readable:
                    more = medium.read(BLOCK)
                    assert more
                    got += more
                if writable:
                    left = left[medium.write_some(left) :]
            assert got == text

    def test_a_peer_that_is_gone(self, connect: Callable[[Peer], Medium]) -> None:
        """Nothing more is read, and writing is an error, at the latest when it was tried a few times."""
        with contextlib.closing(connect(Peer.BREAKS_OFF)) as medium:
            write_all(medium, b"x")
            assert read_all(medium, 1) == b"x"
            assert medium.poll(read=True, write=False, timeout=PATIENCE) == (True, False)
            with contextlib.suppress(ConnectionLost):
                assert medium.read(1) == b""
            with pytest.raises(ConnectionLost):
                _write_on(medium)

    def test_closing_twice(self, connect: Callable[[Peer], Medium]) -> None:
        """It is harmless, whatever was left unread."""
        medium = connect(Peer.SAYS_TEXT)
        assert medium.poll(read=True, write=False, timeout=PATIENCE) == (True, False)
        medium.close()
        medium.close()


def _write_on(medium: Medium) -> None:
    taken = 0
    while taken < MOST:
        medium.poll(read=False, write=True, timeout=PATIENCE)
        taken += medium.write_some(memoryview(bytes(BLOCK)))
