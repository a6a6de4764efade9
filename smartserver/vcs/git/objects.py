"""Reads git objects through `git cat-file`: object by object from one process, or a whole list at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from smartserver.records.delta import TextParts
from smartserver.records.limits import MAX_BASED
from smartserver.vcs.base import VcsError
from smartserver.vcs.pipes import widen

if TYPE_CHECKING:
    from smartserver.records.model import Key

COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4
"""Git's pack type numbers. A record's meta is one of these numbers as a byte."""

TYPE_NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
TYPE_NUMBERS = {name: number for number, name in TYPE_NAMES.items()}
METAS = {number: bytes((number,)) for number in TYPE_NAMES}

SHORT = 64 << 10
"""The most bytes of an unnamed file that is created in memory."""

PART = 1 << 20
"""The size of each part of a large text, in bytes; the last part may be smaller."""

Start = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a git command on the repository: `start(*arguments, stdin=..., stdout=...)`."""


class MissingObject(VcsError):
    """The repository refers to an object that it lacks."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"object {self.key.hex()} is missing from this repository or damaged (run `git fsck`)"


class TooLarge(VcsError):
    """An object has more bytes than the caller accepts. Its text was not read."""

    def __init__(self, key: Key, size: int) -> None:
        super().__init__(key, size)
        self.key = key
        self.size = size

    def __str__(self) -> str:
        return f"object {self.key.hex()} is too large: {self.size} bytes"


class ReadingEnded(VcsError):
    """`git cat-file` ended instead of answering. In a partial clone this happens for objects that were not fetched."""

    def __init__(self, asked: bytes) -> None:
        super().__init__(asked)
        self.asked = asked

    def __str__(self) -> str:
        return f"git cat-file ended early when asked for {self.asked.decode('utf-8', 'replace')}"


class GitObject(NamedTuple):
    """An object: its key, git's type number and its text."""

    key: Key
    type: int
    text: bytes
    parts: TextParts | None = None
    """The parts of a large text, if the caller passed `most`; `text` is then empty."""


def _next_object(output: IO[bytes], asked: bytes, most: int | None = None) -> GitObject | None:
    """Read the next answer of `cat-file --batch`; None if the object is missing. With `most`, a large text is returned
    in parts. A text of more than `most` bytes raises TooLarge, after which the process cannot be used."""
    head = output.readline()
    if not head.endswith(b"\n"):
        raise ReadingEnded(asked)
    fields = head[:-1].rsplit(b" ", 2)
    number = TYPE_NUMBERS.get(fields[1]) if len(fields) == 3 else None
    if number is None or not fields[2].isdigit():
        return None  # "<what was asked> missing" (or ambiguous)
    size = int(fields[2])
    if most is not None and size > most:
        raise TooLarge(unhexlify(fields[0]), size)
    text, parts, came = b"", None, 0
    if most is not None and size > MAX_BASED:
        parts = TextParts(output.read(min(PART, size - at)) for at in range(0, size, PART))
        came = parts.length
    else:
        text = output.read(size)
        came = len(text)
    if came != size or output.read(1) != b"\n":
        raise ReadingEnded(asked)
    return GitObject(unhexlify(fields[0]), number, text, parts)


class ObjectReader:
    """A `git cat-file --batch` that reads one object at a time. It starts on first use. It must not be used by two
    threads."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def _ask(self, name: bytes, most: int | None = None) -> GitObject | None:
        self.open()
        assert self._process is not None
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        try:
            questions.write(name + b"\n")
            questions.flush()
            return _next_object(answers, name, most)
        except BrokenPipeError as error:
            self._end()  # The next question starts another.
            raise ReadingEnded(name) from error
        except BaseException:
            self._end()  # An answer is half read: the next question would get the rest of it.
            raise

    def read(self, key: Key, most: int | None = None) -> GitObject:
        """Return the object of a key. With `most`, a text of more than `MAX_BASED` bytes is returned in parts.

        Raises:
            MissingObject: the repository lacks the object.
            TooLarge: the object has more than `most` bytes.
        """
        found = self._ask(hexlify(key), most)
        if found is None:
            raise MissingObject(key)
        return found

    def find(self, name: bytes) -> GitObject | None:
        """Return the object that a name, id or expression such as `main~3` denotes, or None."""
        if b"\n" in name or not name:
            return None
        return self._ask(name)

    def open(self) -> None:
        """Start `git cat-file` before the first `read`, so that the caller need not wait for its start.

        Raises:
            RuntimeError: the reader was closed.
        """
        if self._is_closed:
            raise RuntimeError("no object is read after `close`")
        if self._process is None:
            self._process = self._start("cat-file", "--batch", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        """End the process. A later read raises RuntimeError, because nothing would end a new process."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process whose output is no longer needed, even after `communicate` was interrupted, and close its
    pipes."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    if process.poll() is None:
        process.terminate()
    process.wait()


@contextlib.contextmanager
def scratch(content: bytes = b"") -> Iterator[IO[bytes]]:
    """Open an unnamed file that has this content and is read from its start. Short content is kept in memory."""
    with _unnamed(len(content)) as file:
        file.write(content)
        file.seek(0)
        yield file


def _unnamed(size: int) -> IO[bytes]:
    if hasattr(os, "memfd_create") and size <= SHORT:
        return open(os.memfd_create("git"), "w+b")
    import tempfile  # Imported late: with its imports it takes 4 ms of the 100 ms of a push.

    return tempfile.TemporaryFile()


def stream(start: Start, keys: Sequence[Key]) -> Iterator[GitObject]:
    """Yield the objects of `keys` in order. One process reads them, ahead of the caller.

    Raises:
        MissingObject: the repository lacks an object.
        ReadingEnded: the process failed.
    """
    # A file, not a pipe: nobody has to feed the process while its answers are read.
    with scratch(b"".join([b"%s\n" % hexlify(key) for key in keys])) as questions:
        process = start("cat-file", "--batch", "--buffer", stdin=questions, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        widen(process.stdout.fileno())
        for key in keys:
            found = _next_object(process.stdout, hexlify(key))
            if found is None:
                raise MissingObject(key)
            yield found
    finally:
        end(process)


class ObjectStore(Protocol):
    """The native part of this name, which reads objects from packs and loose files."""

    def read(self, key: Key, /) -> tuple[int, bytes] | None:
        """Return the type and text of an object; None if git must read it: it is large, damaged or not found."""


Reading = Callable[..., GitObject]
"""Reads an object: a function with the arguments and errors of `ObjectReader.read`."""


def reading(store: ObjectStore | None, objects: ObjectReader) -> Reading:
    """Return a function that reads an object from `store`, else through git."""
    if store is None:
        return objects.read

    def read(key: Key, most: int | None = None) -> GitObject:
        found = store.read(key)
        return objects.read(key, most) if found is None else GitObject(key, *found)

    return read
