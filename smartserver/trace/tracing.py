"""`Tracing`: what shows, bans and records the calls of one client, as flags say. The same for every tool."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smartserver.spans import listening
from smartserver.trace import text
from smartserver.trace.flags import BadFlag, Flags
from smartserver.trace.recorder import CallRecord, Recorder, Span, since_start
from smartserver.wire.observer import Observer

if TYPE_CHECKING:
    from smartserver.trace.file import TraceFile

PARENT = "TRACEPARENT"
"""The variable with the trace that a command belongs to, as W3C Trace Context writes it."""


class Tracing:
    """Of one client. Its observers are for that, and it is closed when the client is."""

    def __init__(
        self,
        flags: Flags,
        say: Callable[[str], None],
        program: str,
        environment: Mapping[str, str],
        behind: str = "",
        *,
        is_host: bool = False,
    ) -> None:
        """`say`: gets lines. `program`: as the trace names this process. `behind`: as of `text.summary`.
        `is_host`: as in `ProcessBegan`.

        Raises:
            BadFlag: a rule is none, or the file for the trace cannot be opened.
        """
        self.observers: list[Observer] = []
        self.recorder: Recorder | None = None
        self._say = say
        self._behind = behind
        self._in_detail = "hpssdetail" in flags.words
        self.shows = flags.shows
        """Whether calls are shown."""
        self._start = since_start() if flags.shows else None
        self._file: TraceFile | None = None
        if flags.file:
            from smartserver.trace.file import TraceFile  # Loaded where a trace is recorded.

            try:
                self._file = TraceFile(flags.file, program, _trace_of(environment.get(PARENT, "")), is_host=is_host)
            except OSError as wrong:
                raise BadFlag(f"no trace can be written to {flags.file}: {wrong.strerror}") from None
        if flags.shows or self._file is not None:
            self.recorder = Recorder(finished=self._finished, spanned=self._spanned, stacks="hpssvfs" in flags.words)
            self.observers.append(self.recorder)
        if flags.rules:
            from smartserver.trace.bans.every import watcher  # Loaded where something is banned.
            from smartserver.trace.bans.rule import BadRule

            try:
                self.observers.append(watcher(flags.rules))
            except BadRule as wrong:
                raise BadFlag(str(wrong)) from None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the spans of this thread, where they are wanted."""
        with listening(self.recorder) if self.recorder is not None else contextlib.nullcontext():
            yield

    @property
    def traceparent(self) -> str:
        """What requests say of the trace; empty where none is recorded."""
        return "" if self._file is None else f"00-{self._file.trace}-{self._file.span_id}-01"

    @property
    def records(self) -> bool:
        """Whether a trace is written."""
        return self._file is not None

    def close(self) -> None:
        """Say what it was in all, and end the trace."""
        if self.recorder is not None and self.shows:
            self._say(text.summary(self.recorder, time.monotonic(), self._behind, self._start))
        self.end()

    def end(self) -> None:
        """End the trace."""
        file, self._file = self._file, None
        if self.recorder is not None and file is not None:
            file.close(self.recorder)

    def _finished(self, record: CallRecord) -> None:
        if self.shows:
            self._say("\n".join(text.lines(record, in_detail=self._in_detail)))
        if self._file is not None:
            self._file.request(record)

    def _spanned(self, span: Span) -> None:
        if self._file is not None:
            self._file.span(span)


def _trace_of(parent: str) -> str:
    """The id of the trace in a `traceparent`; empty if it is none."""
    version, _, rest = parent.partition("-")
    trace = rest.partition("-")[0]
    return trace if version == "00" and len(trace) == 32 and set(trace) <= set("0123456789abcdef") else ""
