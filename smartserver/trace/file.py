"""`TraceFile`: a recorder's events as lines of a file, which several processes may append to."""

from __future__ import annotations

import os
import time

from smartserver.trace.events import Event, ProcessBegan, ProcessEnded, RequestEnded, SpanEnded, encode
from smartserver.trace.recorder import CallRecord, Recorder, Span, since_start

GATHERED = 64 * 1024
"""Bytes of lines that are written at once: the kernel appends the bytes of one write together."""

ADJACENT = 50
"""Microseconds between two spans of the same that count as one."""


class TraceFile:
    """The trace of this process. Nothing of it is lost when it is closed; a process that is killed loses the end."""

    def __init__(self, path: str, program: str, trace: str = "", *, is_host: bool = False) -> None:
        """Open or make it; others may not read one that is made. `trace`, `is_host`: as in `ProcessBegan`; default: a
        new trace.

        Raises:
            OSError: it cannot be opened.
        """
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._process = os.getpid()
        self._lines: list[bytes] = []
        self._size = 0
        self._last: SpanEnded | None = None
        now, started = time.monotonic(), since_start()
        self.trace = trace or os.urandom(16).hex()
        self.span_id = os.urandom(8).hex()
        """Of this process, as of W3C Trace Context."""
        self._add(
            ProcessBegan(
                process=self._process,
                version=1,
                program=program,
                trace=self.trace,
                began=_micro(now),
                is_host=is_host,
                started=None if started is None else _micro(now - started),
                epoch=_micro(time.time() - now),
            )
        )

    def request(self, record: CallRecord) -> None:
        """Add a request that is over."""
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
                stack=record.stack,
            )
        )

    def span(self, span: Span) -> None:
        """Add a span that is over."""
        last, start, end = self._last, _micro(span.start), _micro(span.end)
        cpu, count = _micro(span.cpu), 1
        if last is not None:
            if (last.part, last.name) == (span.part, span.name) and start - last.end <= ADJACENT:
                start, cpu, count = last.start, last.cpu + cpu, last.count + 1
            else:
                self._write(last)
        self._last = SpanEnded(self._process, span.part, start, end, span.name, count, cpu)

    def close(self, recorder: Recorder) -> None:
        """Write what is left, and what the recorder counted."""
        if self._process == os.getpid():  # A process that this one forked has no part in it.
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
            self._flush()
        os.close(self._file)

    def _add(self, event: Event) -> None:
        if self._last is not None:
            self._write(self._last)
            self._last = None
        self._write(event)

    def _write(self, event: Event) -> None:
        line = encode(event)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= GATHERED:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines, self._size = b"".join(self._lines), [], 0
        os.write(self._file, lines)


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)
