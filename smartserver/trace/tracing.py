"""`Tracing`: shows, bans and records the calls of one client, depending on flags. All tools use it."""

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
    from smartserver.trace.bans.noter import Note
    from smartserver.trace.events import Event
    from smartserver.trace.file import Narrator, TraceFile
    from smartserver.trace.wait import Trace

PARENT = "TRACEPARENT"
"""The environment variable with the trace that a command belongs to, as W3C Trace Context writes it."""


class Tracing:
    """The tracing of one client: it provides observers for that client, and is closed with the client."""

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
        """`say` is called with lines. `program`: the name of this process in the trace. `behind`: as in `text.summary`.
        `is_host`: as in `ProcessBegan`.

        Raises:
            BadFlag: a rule is unknown, or the file for the trace cannot be opened.
        """
        notes = []
        if flags.file:
            from smartserver.trace.bans.every import noter

            notes = [noter(self._noted)]  # Before the trace begins, so that loading all rules is a part of the start.
        self.observers: list[Observer] = []
        self.recorder: Recorder | None = None
        self._say = say
        self._behind = behind
        self._in_detail = "hpssdetail" in flags.words
        self.shows = flags.shows
        """True if calls are shown."""
        self._start = since_start() if flags.shows else None
        self._file: TraceFile | None = None
        self._trace: Trace | None = None
        self._narrator: Narrator | None = None
        if flags.file or self._in_detail:
            self._begin(flags, program, _trace_of(environment.get(PARENT, "")), is_host=is_host)
        if flags.shows or self._narrator is not None:
            linked = None if self._narrator is None else self._narrator.link
            places = "hpssvfs" in flags.words
            self.recorder = Recorder(finished=self._finished, spanned=self._spanned, linked=linked, places=places)
            self.observers.append(self.recorder)
        self.observers += notes
        if "hpssbytes" in flags.words:
            from smartserver.trace.frames import FrameLog  # Loaded only if frames are shown.

            self.observers.append(FrameLog(say))
        if flags.rules:
            from smartserver.trace.bans.every import watcher  # Loaded only if something is banned.
            from smartserver.trace.bans.rule import BadRule

            try:
                self.observers.append(watcher(flags.rules))
            except BadRule as error:
                raise BadFlag(str(error)) from None

    def _begin(self, flags: Flags, program: str, trace: str, *, is_host: bool) -> None:
        """Begin a trace: in a file, in memory, or both."""
        from smartserver.trace.file import Narrator, TraceFile  # Loaded only if a trace is recorded.

        if flags.file:
            try:
                self._file = TraceFile(flags.file)
            except OSError as error:
                raise BadFlag(f"no trace can be written to {flags.file}: {error.strerror}") from None
        if self._in_detail:
            from smartserver.trace.wait import Trace

            self._trace = Trace()
        self._narrator = Narrator(self._tell, program, trace, is_host=is_host)

    def _tell(self, event: Event) -> None:
        if self._file is not None:
            self._file.append(event)
        if self._trace is not None:
            self._trace.add(event)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the spans of this thread, if a trace is requested."""
        with listening(self.recorder) if self.recorder is not None else contextlib.nullcontext():
            yield

    @property
    def traceparent(self) -> str:
        """The `traceparent` of requests; empty if no trace is recorded."""
        narrator = self._narrator
        return "" if narrator is None else f"00-{narrator.trace}-{narrator.span_id}-01"

    @property
    def records(self) -> bool:
        """True if a trace is written to a file."""
        return self._file is not None

    def close(self) -> None:
        """End the trace, and show the totals and the parts of the wait as the flags require."""
        if self.recorder is not None and self.shows:
            self.recorder.give_up()
            self._say(text.summary(self.recorder, time.monotonic(), self._behind, self._start))
        self.end()
        if self._trace is not None:
            from smartserver.trace.report import parts

            self._say("\n".join(parts(self._trace)))

    def end(self) -> None:
        """End the trace."""
        if self.recorder is not None:
            self.recorder.give_up()
        narrator, self._narrator = self._narrator, None
        if self.recorder is not None and narrator is not None:
            narrator.end(self.recorder)
        file, self._file = self._file, None
        if file is not None:
            file.close()
            if file.problem:
                self._say(f"hpss: the trace is incomplete: {file.problem}")

    def _finished(self, record: CallRecord) -> None:
        if self.shows and self.recorder is not None:
            start = self.recorder.started - (self._start or 0.0)
            self._say("\n".join(text.lines(record, start, in_detail=self._in_detail)))
        if self._narrator is not None:
            self._narrator.request(record)

    def _noted(self, note: Note) -> None:
        if self._narrator is not None and self.recorder is not None:
            self._narrator.note(note, self.recorder.calls)

    def _spanned(self, span: Span) -> None:
        if self._narrator is not None:
            self._narrator.span(span)


def _trace_of(parent: str) -> str:
    """Return the id of the trace in a `traceparent`; empty if it is invalid."""
    version, _, rest = parent.partition("-")
    trace = rest.partition("-")[0]
    return trace if version == "00" and len(trace) == 32 and set(trace) <= set("0123456789abcdef") else ""
