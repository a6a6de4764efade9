"""A connection that another process made: its descriptors, of a socket or of a pipe to a program."""

from __future__ import annotations

import os
from collections.abc import Sequence

from smartserver.client.media.ready import ready
from smartserver.client.medium import ConnectionLost


class DescriptorMedium:
    """Bytes over descriptors, the first to read from, the second (or the same) to write to; implements `Medium`. Those
    after them are held open with it."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = list(descriptors)
        self._in, self._out = self._descriptors[0], self._descriptors[:2][-1]
        for descriptor in (self._in, self._out):
            os.set_blocking(descriptor, False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait for either direction."""
        return ready(self._in if read else None, self._out if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read the next bytes, waiting for the first."""
        while True:
            try:
                return os.read(self._in, size)
            except BlockingIOError:
                self.poll(read=True, write=False)
            except OSError as error:
                raise ConnectionLost(error.strerror or str(error)) from None

    def write_some(self, data: memoryview) -> int:
        """Hand over what fits."""
        try:
            return os.write(self._out, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None

    def lend(self) -> Sequence[int]:
        """All of them."""
        return self._descriptors

    def close(self) -> None:
        """Close all of them."""
        closing, self._descriptors = self._descriptors, []
        for descriptor in closing:
            os.close(descriptor)
