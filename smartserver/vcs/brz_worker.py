"""Compresses what is to be inserted in a process of its own, while this one sees to the rest.

That process reads nothing but what was there when it began. What it makes are Breezy's own blocks, in the form in which
Breezy sends them over a network; this process inserts them as they are. All files here have no name, so that whatever
ends a process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from smartserver.records.model import Key
from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.brz_compat import (
    COMPILED,
    BlockOfTexts,
    Content,
    GroupedTexts,
    Store,
    StoreKey,
    TextCompressor,
    TextsOfBlock,
    encode_length,
)

_LENGTH = 8
"""Bytes that say how long a block is."""

WHOLE_FROM = 3
"""A difference longer than the text divided by this is not stored, but the text."""

_WRONG = 1
"""The status of a process that met a record that is wrong."""


class Worker:
    """A process that compresses what `stream` gives, which is first called there."""

    def __init__(self, stream: Callable[[], Iterator[Content]]) -> None:
        self._pid = 0
        with contextlib.ExitStack() as undo:
            self._blocks = undo.enter_context(tempfile.TemporaryFile())
            self._said = undo.enter_context(tempfile.TemporaryFile(buffering=0))
            # Told to end between the fork and its own first line, the child would do what the parent does then.
            held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self._pid = os.fork()
                if not self._pid:
                    self._work(stream, held)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)
            self._files = undo.pop_all()

    def finish(self, hashed: Callable[[Key, bytes], None]) -> Iterator[Content]:
        """Wait until all is compressed, tell the sha1 of each text, then give the blocks.

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
        for line in said.splitlines():
            key, _, sha1 = line.partition(b" ")
            hashed(bytes.fromhex(key.decode("ascii")), sha1)
        return self._read()

    def abandon(self) -> None:
        """Stop the process, if it still goes on, and drop what it made."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0
        self._files.close()

    def _read(self) -> Iterator[Content]:
        self._blocks.seek(0)
        while head := self._blocks.read(_LENGTH):
            texts = TextsOfBlock.from_bytes(self._blocks.read(int.from_bytes(head, "big")))
            texts.check_is_well_utilized = lambda: True  # Else Breezy would make small ones anew.
            yield from texts.get_record_stream()

    def _work(self, stream: Callable[[], Iterator[Content]], mask: set[int | signal.Signals]) -> None:
        """The life of the process; `mask`: the signals that were blocked before the fork."""
        status = 2
        try:
            _be_ended_by_signals()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent was interrupted too, and ends this one.
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            gc.disable()
            try:
                writer = _Blocks(self._blocks.write)
                sha1s: list[bytes] = []
                writer.insert(_noted(stream(), sha1s))
                self._blocks.flush()
                said, status = b"\n".join(sha1s), 0
            except WrongContent as wrong:
                said, status = f"{wrong.key.hex()}\n{wrong.why}".encode(), _WRONG
            while said:
                said = said[self._said.write(said) or 0 :]
        except BaseException as wrong:  # Nothing may escape into the parent's code.
            with contextlib.suppress(OSError):
                self._said.write(repr(wrong).encode())
        finally:
            os._exit(status)


def _be_ended_by_signals() -> None:
    """Let signals do here what they do to any process: what the parent does then is the parent's alone."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _noted(stream: Iterator[Content], sha1s: list[bytes]) -> Iterator[Content]:
    for each in stream:
        sha1s.append(b"\0".join(each.key).hex().encode() + b" " + (each.sha1 or b""))
        yield each


class Sparing(TextCompressor):  # type: ignore[misc]
    """Breezy's compressor, which looks for what a text has in common with the whole texts of its block alone.

    Breezy looks in the differences before it, too. Those of a file of many versions are made of ever more and ever
    smaller pieces, so that finding them costs most of the time; here a text that has changed by a third lies whole.
    """

    _skipped = 0
    """Bytes since the last whole text, which nothing is looked for in."""

    def _compress(
        self, key: object, chunks: list[bytes], input_len: int, max_delta_size: float, soft: bool = False
    ) -> tuple[int, int, str]:
        text = b"".join(chunks)
        delta = self._delta_index.make_delta(text, input_len // WHOLE_FROM)
        if delta is None:
            kind, head, content = "fulltext", b"f" + encode_length(input_len), text
            self._delta_index.add_source(text, len(head) + self._skipped)
            self._skipped = 0
        else:
            kind, head, content = "delta", b"d" + encode_length(len(delta)), delta
            self._skipped += len(head) + len(content)
        start = self.endpoint
        self._output_chunks([head, content])
        self.input_bytes += input_len
        return start, self.endpoint, kind


class _Blocks:
    """What Breezy's own store takes for an index and a pack file: each block goes on in its form for networks."""

    has_graph = True

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._block = b""
        store: Any = GroupedTexts(self, self, True)
        if COMPILED:
            store._make_group_compressor = lambda: Sparing(store._get_compressor_settings())
        self._store: Store = store

    def insert(self, stream: Iterator[Content]) -> None:
        """Make blocks of all that comes."""
        self._store.insert_record_stream(stream)

    def add_raw_record(self, key: object, size: int, chunks: Iterable[bytes]) -> tuple[None, int, int]:
        """A block; what lies in it is told next."""
        self._block = b"".join(chunks)
        return None, 0, size

    def add_records(
        self, records: Sequence[tuple[StoreKey, bytes, tuple[tuple[StoreKey, ...], ...]]], random_id: bool = False
    ) -> None:
        """Where in the block the texts lie."""
        texts: Any = TextsOfBlock(BlockOfTexts.from_bytes(self._block))
        for key, place, (parents,) in records:
            start, end = place.split(b" ")[2:]
            texts.add_factory(key, parents, int(start), int(end))
        sent = texts._wire_bytes()
        self._write(len(sent).to_bytes(_LENGTH, "big") + sent)
