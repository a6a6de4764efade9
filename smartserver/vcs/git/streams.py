"""Runs git's fast-export and fast-import on a local repository, and reports a bad stream in one line.

Git's message has the fault of a stream but not its line. Git leaves a crash report with the last commands that it read.
This process writes the stream to git through a pipe, and counts its lines. The kernel tells how many bytes git left in
the pipe. This process then searches the last bytes that git read for the commands of the report, which gives the line.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import signal
import struct
import subprocess
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, NamedTuple

from smartserver.records.model import Key
from smartserver.vcs.base import BadStream, ToolFailed
from smartserver.vcs.git.format import TreeEntry
from smartserver.vcs.git.names import TAGS
from smartserver.vcs.git.objects import COMMIT, TAG, TREE, end, scratch, stream
from smartserver.vcs.git.repository import GitRepository, failure
from smartserver.vcs.git.system import git_key

_BLOCK: Final = 1 << 16
_WINDOW: Final = 3 << 16
"""At least this many of the stream's last bytes are kept: more than a pipe holds (64 KiB) plus `_AHEAD`."""

_AHEAD: Final = 4096
"""Bytes that git reads ahead: the buffer of C's library for a pipe."""

_IDENT: Final = rb"[^<>\n]* <[^<>\n]*>  *-?[0-9]{1,19} [+-][0-9]{1,19}\n"
"""Matches a person and a date that git can read in a stream."""

_COMMIT: Final = re.compile(
    rb"tree [^\n]*\n(?:parent [^\n]*\n)*author %bcommitter %b(?:encoding [^\n]*\n)?(?:\n|\Z)" % (_IDENT, _IDENT)
)
_TAG: Final = re.compile(rb"object [^\n]*\ntype commit\ntag ([^\n]*)\n(?:tagger %b)?(?:\n|\Z)" % _IDENT)
"""These match the header of a commit and of a tag that a stream can represent completely."""

_OF_TAG: Final = re.compile(rb"object [^\n]*\ntype tag\n")
"""Matches the beginning of a tag of a tag."""


_FOLDER: Final = b"40000"
_MODES: Final = frozenset((b"100644", b"100755", b"120000", b"160000", _FOLDER))
"""The modes that git gives the files and folders of a stream."""

_OF_HEAD: Final = (b"feature ", b"option ", b"#")
"""The beginnings of lines after which git still accepts options."""

_WRITES: Final = b"option git export-pack-edges="
"""The option that makes git write a file which the stream names. Git itself refuses all other such options."""

_MAX_HEAD: Final = 1 << 20


class Omissions(NamedTuple):
    """The objects and refs that a stream cannot represent as they are."""

    commits: int
    """The number of commits with a signature, an extra header, an author that a stream cannot name, or a NUL byte."""
    trees: int
    """The number of trees with a mode, an order, a name or an empty folder that git would not write itself."""
    tags: int
    """The number of tags that name no commit, have another name than their ref, or have a fault as in `commits`."""
    has_nested_tags: bool
    """True if there is a tag of a tag: git writes such tags with marks, which few readers know."""


def find_omissions(repository: GitRepository) -> Omissions:
    """Count the commits, trees and tags of a repository that a stream cannot represent."""
    listed = repository.run("rev-list", "--all", "--objects", "--no-object-names", "--filter=blob:none")
    empty = git_key(f"git-{repository.object_format}", bytes([TREE]), b"")
    commits = trees = 0
    for found in stream(repository.start, [bytes.fromhex(line.decode()) for line in listed.split()]):
        if found.type == COMMIT:
            commits += _COMMIT.match(found.text) is None or b"\0" in found.text
        elif found.type == TREE:
            trees += not _comes_back(repository.format.tree(found.key, found.text), empty)
    refs = repository.refs()
    tags = nested = 0
    for name, tip in zip(refs, stream(repository.start, list(refs.values())), strict=True):
        if tip.type == TAG:
            head = _TAG.match(tip.text)
            tags += head is None or head[1] != name.removeprefix(TAGS) or b"\0" in tip.text
            nested += _OF_TAG.match(tip.text) is not None
        elif tip.type != COMMIT:
            tags += 1
    return Omissions(commits, trees, tags, nested > 0)


def _comes_back(entries: Sequence[TreeEntry], empty: Key) -> bool:
    """Tell whether git makes the same tree again from the files of a stream. `empty`: the key of an empty tree."""
    names = {name for _, name, _ in entries}
    places = [name + b"/" if mode == _FOLDER else name for mode, name, _ in entries]
    return (
        _MODES.issuperset([mode for mode, _, _ in entries])
        and len(names) == len(places)
        and places == sorted(places)
        and b"/" not in b"".join(names)
        and empty not in [key for _, _, key in entries]
    )


def export_stream(
    repository: GitRepository,
    refs: Sequence[str],
    options: Sequence[str],
    output: IO[bytes],
    say: Callable[[str], object] = lambda line: None,
) -> None:
    """Write the stream of `refs`, or of all refs if `refs` is empty, parents first. `say` is called with each warning
    of git.

    Raises:
        ToolFailed: git failed.
        BrokenPipeError: the reader of `output` ended early.
    """
    words = ("fast-export", "--use-done-feature", *options, *(refs or ("--all",)))
    with scratch() as said:
        process = repository.start(*words, stdout=output, stderr=said)
        try:
            status = process.wait()
        finally:
            end(process)
        said.seek(0)
        text = said.read()
    if status in (-signal.SIGPIPE, 128 + signal.SIGPIPE):
        raise BrokenPipeError
    if status:
        raise failure("fast-export", status, text)
    for line in text.decode("utf-8", "replace").splitlines():
        say(line)


class _Feed:
    """Keeps the last part of the stream that was written to git, and finds the numbers of lines in it."""

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._kept = 0
        self._lines = 0
        """The number of lines before the blocks that are kept."""
        self.size = 0

    def add(self, block: bytes) -> None:
        self.size += len(block)
        self._kept += len(block)
        self._blocks.append(block)
        while self._kept - len(self._blocks[0]) >= _WINDOW:
            dropped = self._blocks.popleft()
            self._kept -= len(dropped)
            self._lines += dropped.count(b"\n")

    def line(self, commands: Sequence[bytes], unread: int) -> int:
        """Return the line number of the last of `commands`, the commands that git read last. If `commands` is empty,
        return the number of the last line that git read.

        The search begins at the last command that occurs only once, mostly a `mark :7`. `unread`: the number of bytes
        that git left in the pipe.
        """
        text = b"\n" + b"".join(self._blocks)
        stop = max(len(text) - unread, 0)
        if not commands:
            return self._lines + max(text.count(b"\n", 0, stop) - text[:stop].endswith(b"\n"), 1)
        at = max(stop - _AHEAD - len(commands[-1]), 0)
        rest = commands[-1:]
        for number in reversed(range(len(commands))):
            words = b"\n%b\n" % commands[number]
            found = text.find(words, 0, stop)
            if found >= 0 and text.find(words, found + 1, stop) < 0:
                at, rest = found, commands[number:]
                break
        for command in rest:
            words = b"\n%b\n" % command
            found = text.find(words, at, stop)
            if found < 0:
                break
            at = found + len(words) - 1
        return self._lines + text.count(b"\n", 0, at)


def import_stream(
    repository: GitRepository,
    source: IO[bytes],
    options: Sequence[str],
    moved: Callable[[int], object] = lambda size: None,
) -> None:
    """Import a stream into a repository. `moved` is called with the number of bytes passed to git so far.

    Raises:
        BadStream: git refused the stream or failed.
    """
    # Git refuses features of a stream that would write another file (`--allow-unsafe-features`).
    words = ("fast-import", "--quiet", "--date-format=raw-permissive", *options)
    feed = _Feed()
    with scratch() as said:
        read, write = os.pipe()
        watch = _Watch(read)
        try:
            process = repository.start(*words, stdin=read, stderr=said)
        except BaseException:
            os.close(read)
            os.close(write)
            raise
        try:
            watch.begin(process)
            with os.fdopen(write, "wb", 0) as pipe, contextlib.suppress(BrokenPipeError):
                for block in _blocks(source):
                    feed.add(block)
                    _write_all(pipe, block)
                    moved(feed.size)
            watch.finish()
        finally:
            end(process)
            watch.finish()
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    if not feed.size:
        raise BadStream("the stream is empty")
    if process.returncode:
        raise _failure(text, process.returncode, feed.line(_last_commands(repository), watch.unread))


class _Watch:
    """Waits for git's end, counts the bytes that git left in the pipe, and closes the pipe, so that no write blocks."""

    def __init__(self, read: int) -> None:
        self._read = read
        self._thread: threading.Thread | None = None
        self.unread = 0

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Start a thread that waits for the process."""
        self._thread = threading.Thread(target=self._wait, args=(process,), daemon=True)
        self._thread.start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        (self.unread,) = struct.unpack("i", fcntl.ioctl(self._read, termios.FIONREAD, bytes(4)))
        os.close(self._read)

    def finish(self) -> None:
        """Wait until git has ended and the pipe is closed."""
        if self._thread is not None:
            self._thread.join()


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a stream after a check of its head."""
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    head = b""
    is_head = True
    while is_head and (block := read(_BLOCK)):
        head += block
        is_head = _check_head(head)
    if head:
        yield head
    while block := read(_BLOCK):
        yield block


def _check_head(text: bytes) -> bool:
    """Check the complete lines of a stream's head. Return True if more lines of the head may follow."""
    lines = text.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        if line.startswith(_WRITES):
            raise BadStream.at(number, f"forbidden: {line.decode('utf-8', 'replace')}")
        if line and not line.startswith(_OF_HEAD):
            return False
    if len(text) > _MAX_HEAD:
        raise BadStream.at(len(lines), f"expected a command other than feature and option within {_MAX_HEAD} bytes")
    return True


def _write_all(pipe: IO[bytes], block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[pipe.write(rest) :]


def _last_commands(repository: GitRepository) -> list[bytes]:
    """Return the commands that git read last, from its crash report, and delete the report."""
    for name in glob.glob(os.path.join(glob.escape(repository.git_dir), "fast_import_crash_*")):
        with open(name, "rb") as file:
            report = file.read()
        os.unlink(name)
        listed = report.partition(b"\nMost Recent Commands Before Crash\n")[2].partition(b"\n\n")[0]
        return [line[2:] for line in listed.split(b"\n")[1:] if line[:2] in (b"  ", b"* ")]
    return []


def _failure(said: str, status: int, line: int) -> BadStream:
    """Return the error in one line: git's message and the line of the stream."""
    lines = said.splitlines()
    fatal = next((row.removeprefix("fatal: ") for row in lines if row.startswith("fatal: ")), None)
    if fatal is not None:
        return BadStream.at(line, fatal)
    kept = [row.removeprefix("warning: ") for row in lines if row.startswith("warning: Not updating ")]
    if kept:
        return BadStream(f"{kept[0]}; --force moves it")
    return BadStream(str(ToolFailed("git fast-import", status, "; ".join(lines[:1]))))
