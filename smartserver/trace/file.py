"""`Narrator` makes the events of a trace from a recorder's data. `TraceFile` writes them as lines of a file, to which
several processes may append."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from smartserver.trace.events import (
    VERSION,
    Event,
    FindingMade,
    LinkMeasured,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    encode,
)
from smartserver.trace.recorder import CallRecord, Recorder, Span, since_start

if TYPE_CHECKING:
    from smartserver.trace.bans.noter import Note

GATHERED = 64 * 1024
"""Lines are written at the latest when they have this many bytes, in one write, because the kernel does not interleave
the bytes of one write with others."""

ADJACENT = 50
"""The most microseconds between two spans of the same work that are joined into one event."""


class Narrator:
    """Generates the trace events of this process."""

    def __init__(self, tell: Callable[[Event], None], program: str, trace: str = "", *, is_host: bool = False) -> None:
        """`tell` is called with each event. The other arguments are as in `ProcessBegan`. Without `trace`, a new trace
        begins."""
        self._tell = tell
        self._process = os.getpid()
        self._last: SpanEnded | None = None
        self._depth = 0
        """The number of spans around `_last`."""
        now, started = time.monotonic(), since_start()
        self.trace = trace or os.urandom(16).hex()
        self.span_id = os.urandom(8).hex()
        """The span id of this process, as in W3C Trace Context."""
        tell(
            ProcessBegan(
                process=self._process,
                version=VERSION,
                program=program,
                trace=self.trace,
                began=_micro(now),
                is_host=is_host,
                started=None if started is None else _micro(now - started),
                epoch=_micro(time.time() - now),
            )
        )

    def request(self, record: CallRecord) -> None:
        """Add a finished request."""
        self._add(
            RequestEnded(
                process=self._process,
                verbs=record.verbs,
                arguments=record.arguments,
                path=record.path,
                start=_micro(record.started),
                answered=_micro(record.answered),
                end=_micro(record.ended),
                result=record.result,
                up=record.bytes_up,
                down=record.bytes_down,
                in_server=record.server_microseconds,
                server=record.server,
                counts=record.counts,
                where=record.where,
            )
        )

    def span(self, span: Span) -> None:
        """Add a finished span."""
        last, start, end = self._last, _micro(span.start), _micro(span.end)
        cpu, count = _micro(span.cpu), 1
        if last is not None:
            same = (last.part, last.name, self._depth) == (span.part, span.name, span.depth)
            if same and start - last.end <= ADJACENT:
                start, cpu, count = last.start, last.cpu + cpu, last.count + 1
            else:
                self._tell(last)
        self._depth = span.depth
        self._last = SpanEnded(self._process, span.part, start, end, span.name, count, cpu)

    def note(self, note: Note, calls: Sequence[CallRecord]) -> None:
        """Add a finding about requests. `calls`: all requests so far."""
        finding = note.finding
        self._add(
            FindingMade(
                process=self._process,
                behaviour=note.behaviour,
                verb=finding.verb,
                why=finding.why,
                cost=finding.cost.value,
                requests=[_micro(calls[number].started) for number in note.requests],
                where=note.where,
                share=finding.share,
            )
        )

    def link(self, state: Mapping[str, int]) -> None:
        """Add the state of a TCP connection."""
        self._add(LinkMeasured(self._process, **state))

    def end(self, recorder: Recorder) -> None:
        """Add the last span and the totals of the recorder."""
        self._add(
            ProcessEnded(
                process=self._process,
                at=_micro(time.monotonic()),
                round_trips=recorder.round_trips,
                connections=recorder.connections,
                up=recorder.bytes_up,
                down=recorder.bytes_down,
            )
        )

    def _add(self, event: Event) -> None:
        if self._last is not None:
            self._tell(self._last)
            self._last = None
        self._tell(event)


class TraceFile:
    """A file with one event in each line. The last spans of a process that is killed are lost."""

    def __init__(self, path: str) -> None:
        """Open the file, or create it with no access for other users.

        Raises:
            OSError: the file cannot be opened.
        """
        self._file = open_trace(path)
        self._process = os.getpid()
        # This ends a partial line that a killed process or a full disk left.
        self._lines = [b"\n"] if os.fstat(self._file).st_size else []
        self._size = 0
        self.problem = ""
        """The reason why lines are missing, or empty. No error is raised, because a command must not fail because of
        its trace."""

    def append(self, event: Event) -> None:
        """Add a line. A forked process adds no line, because its events do not belong to this process."""
        if self._process != os.getpid():
            return
        line = encode(event)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= GATHERED or not isinstance(event, SpanEnded):
            self._flush()

    def close(self) -> None:
        """Write the remaining lines, and close the file."""
        if self._process == os.getpid():
            self._flush()
        os.close(self._file)

    def _flush(self) -> None:
        lines, self._lines, self._size = b"".join(self._lines), [], 0
        try:
            while lines and not self.problem:
                lines = lines[os.write(self._file, lines) :]
        except OSError as error:
            self.problem = error.strerror or str(error)


def open_trace(path: str) -> int:
    """Open a file for a trace, and return its descriptor. A new file can be read only by its owner.

    Raises:
        OSError: the file cannot be opened, or is no ordinary file of this user.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(file)
        raise OSError(errno.EPERM, "it belongs to another user", path)
    return file


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)
