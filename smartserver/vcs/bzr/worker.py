"""Makes blocks of what is to be inserted in a process of its own, while this one sees to the rest.

That process reads nothing but what was there when it began. This one inserts the blocks as they are. All files here
have no name, so that whatever ends a process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import marshal
import tempfile
from collections.abc import Callable, Iterator

from smartserver.vcs.bzr.block import Give, BlockText, TextRange, fill
from smartserver.vcs.child import Child


class Worker:
    """A process that makes blocks of what `stream` gives, which is first called there."""

    def __init__(self, stream: Callable[[], Iterator[BlockText]]) -> None:
        with contextlib.ExitStack() as undo:
            self._blocks = undo.enter_context(tempfile.TemporaryFile())
            answer = undo.enter_context(tempfile.TemporaryFile(buffering=0))
            self._child = Child(answer.fileno(), lambda: self._work(stream))
            self._files = undo.pop_all()

    def finish(self, give: Give) -> None:
        """Wait until all is compressed, then give the blocks."""
        self._child.wait()
        self._blocks.seek(0)
        while True:
            try:
                block, places = marshal.load(self._blocks)
            except EOFError:
                break
            give(block, [TextRange(*place) for place in places])

    def abandon(self) -> None:
        """Stop the process, if it still runs, and drop what it made."""
        self._child.abandon()
        self._files.close()

    def _work(self, stream: Callable[[], Iterator[BlockText]]) -> bytes:
        fill(stream(), self._write)
        self._blocks.flush()
        return b""

    def _write(self, block: bytes, places: list[TextRange]) -> None:
        marshal.dump((block, [tuple(place) for place in places]), self._blocks)
