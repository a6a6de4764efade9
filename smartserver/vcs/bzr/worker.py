"""Makes blocks of what is to be inserted in a process of its own, while this one sees to the rest.

That process reads nothing but what was there when it began. This one inserts the blocks as they are. All files here
have no name, so that whatever ends a process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import signal
import tempfile
from collections.abc import Callable, Iterator

from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.bzr.block import Give, Place, Text, fill
from smartserver.vcs.signals import be_ended_by_signals, held

_WRONG = 1
"""The status of a process that met a record that is wrong."""


class Worker:
    """A process that makes blocks of what `stream` gives, which is first called there."""

    def __init__(self, stream: Callable[[], Iterator[Text]]) -> None:
        self._pid = 0
        with contextlib.ExitStack() as undo:
            self._blocks = undo.enter_context(tempfile.TemporaryFile())
            self._said = undo.enter_context(tempfile.TemporaryFile(buffering=0))
            # Told to end between the fork and its own first line, the child would do what the parent does then.
            with held(signal.valid_signals()) as before:
                self._pid = os.fork()
                if not self._pid:
                    self._work(stream, before)
            self._files = undo.pop_all()

    def finish(self, give: Give) -> None:
        """Wait until all is compressed, then give the blocks.

        Raises:
            WrongContent: a text is wrong.
        """
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = 0
        said = os.pread(self._said.fileno(), os.fstat(self._said.fileno()).st_size, 0)
        if status == _WRONG:
            key, _, why = said.partition(b"\n")
            raise WrongContent(bytes.fromhex(key.decode("ascii")), why.decode("utf-8", "replace"))
        if status:
            end = f"signal {-status}" if status < 0 else said.decode("utf-8", "replace")
            raise VcsError(f"a process that compresses texts failed: {end}")
        self._blocks.seek(0)
        while True:
            try:
                block, places = marshal.load(self._blocks)
            except EOFError:
                break
            give(block, [Place(*place) for place in places])

    def abandon(self) -> None:
        """Stop the process, if it still goes on, and drop what it made."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0
        self._files.close()

    def _work(self, stream: Callable[[], Iterator[Text]], mask: set[int]) -> None:
        """The life of the process; `mask`: the signals that were blocked before the fork."""
        status = 2
        try:
            be_ended_by_signals()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            gc.disable()
            try:
                fill(stream(), self._write)
                self._blocks.flush()
                said, status = b"", 0
            except WrongContent as wrong:
                said, status = f"{wrong.key.hex()}\n{wrong.why}".encode(), _WRONG
            while said:
                said = said[self._said.write(said) or 0 :]
        except BaseException as wrong:  # Nothing may escape into the parent's code.
            with contextlib.suppress(OSError):
                self._said.write(repr(wrong).encode())
        finally:
            os._exit(status)

    def _write(self, block: bytes, places: list[Place]) -> None:
        marshal.dump((block, [tuple(place) for place in places]), self._blocks)
