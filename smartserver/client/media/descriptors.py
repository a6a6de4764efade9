"""A connection that another process opened, used through its descriptors: those of a socket, or of a pipe to a
program."""

from __future__ import annotations

import os
from collections.abc import Sequence

from smartserver.client.media.ready import ready
from smartserver.client.medium import ConnectionLost


class DescriptorMedium:
    """Bytes over descriptors; implements `Medium`. The first descriptor is read from. The second, or else the first, is
    written to. Further descriptors are only kept open."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self._descriptors = list(descriptors)
        self._in, self._out = self._descriptors[0], self._descriptors[:2][-1]
        for descriptor in (self._in, self._out):
            os.set_blocking(descriptor, False)

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested direction is ready; see `Medium.poll`."""
        return ready(self._in if read else None, self._out if write else None, timeout)

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes, and wait for the first."""
        while True:
            try:
                return os.read(self._in, size)
            except BlockingIOError:
                self.poll(read=True, write=False)
            except OSError as error:
                raise ConnectionLost(error.strerror or str(error)) from None

    def write_some(self, data: memoryview) -> int:
        """Write as many bytes as are accepted without blocking. Return their number."""
        try:
            return os.write(self._out, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None

    def lend(self) -> Sequence[int]:
        """Return all descriptors."""
        return self._descriptors

    def close(self) -> None:
        """Close all descriptors."""
        closing, self._descriptors = self._descriptors, []
        for descriptor in closing:
            os.close(descriptor)
