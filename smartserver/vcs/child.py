"""`Child` is a forked process that does a part of the work. `streamed` runs an iterator in such a process."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn

from smartserver.vcs.base import VcsError
from smartserver.vcs.pipes import widen
from smartserver.vcs.signals import be_ended_by_signals, held

_REFUSED = 1
"""The status of a child whose answer is the pickled `VcsError` that it raised."""

_FAILED = 2
"""The status of a child that ended with any other error. Its answer is the message of the error."""


_PIECE: Final = 1 << 16
"""The most bytes of one read of the pipe, and the size of the buffer of its writer."""


class Child:
    """A process that runs `work` and writes its result to the file `answer`."""

    def __init__(self, answer: int, work: Callable[[], bytes]) -> None:
        self._answer = answer
        self._pid = 0
        # A signal between the fork and the child's first line would run the parent's handler in the child.
        with held(signal.valid_signals()) as before:
            self._pid = os.fork()
            if not self._pid:
                self._live(work, before)

    def wait(self) -> bytes:
        """Wait for the process to end, and return its answer. Raises VcsError if `work` failed."""
        status = self._reap()
        answer = os.pread(self._answer, os.fstat(self._answer).st_size, 0)
        if status == _REFUSED:
            import pickle

            refusal: VcsError = pickle.loads(answer)
            raise refusal
        if status:
            why = f"signal {-status}" if status < 0 else answer.decode("utf-8", "replace") or f"status {status}"
            raise VcsError(f"a worker process failed: {why}")
        return answer

    def abandon(self) -> None:
        """Stop the process if it still runs, and wait for its end."""
        if self._pid:
            # An interrupt may have come after the process was waited for and before `_pid` was cleared.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                self._reap()

    def _reap(self) -> int:
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = 0
        return status

    def _live(self, work: Callable[[], bytes], unmasked: Iterable[int]) -> NoReturn:
        """Run `work` in the forked process, and exit. `unmasked`: the signals that were blocked before the fork."""
        status = _FAILED
        try:
            be_ended_by_signals()
            signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)
            gc.disable()
            try:
                self._say(work())
                status = 0
            except VcsError as error:
                import pickle

                self._say(pickle.dumps(error))
                status = _REFUSED
        except BaseException as error:  # Nothing may escape into the parent's code.
            with contextlib.suppress(OSError):
                self._say(_why(error).encode())
        finally:
            os._exit(status)

    def _say(self, answer: bytes) -> None:
        while answer:
            answer = answer[os.write(self._answer, answer) :]


def _why(error: BaseException) -> str:
    """Return a message for an error of a worker. For a full disk, the message has the folder of temporary files, to
    which workers write."""
    import tempfile

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        return f"{error.strerror}: {tempfile.gettempdir()!r}"
    return repr(error)


def streamed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Iterate over `chunks` in a child process, and yield their bytes as they arrive, in pieces of other sizes."""
    import tempfile  # Most commands of git fork no child.

    with tempfile.TemporaryFile() as answer:
        reading, writing = os.pipe()
        widen(writing)

        def work() -> bytes:
            os.close(reading)
            with open(writing, "wb", buffering=_PIECE) as file:
                file.writelines(chunks)
            return b""

        with open(reading, "rb", buffering=0) as file:
            try:
                child = Child(answer.fileno(), work)
            finally:
                os.close(writing)
            try:
                while piece := file.read(_PIECE):
                    yield piece
                child.wait()
            finally:
                child.abandon()
