"""The log of a server: on standard error, in a file, in the lines of the systemd journal, or to syslog."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime

from smartserver.cli.errors import CommandError
from smartserver.client.plain import plain
from smartserver.server.logfmt import logfmt

SYSLOG = "/dev/log"
"""The socket of syslog, which systemd connects to the journal."""

NO_SYSLOG = f"there is no syslog on this machine ({SYSLOG})"

AS_JSON = "json:"

LINES, PERIOD = 10, 60.0
"""The most warnings and errors of one kind that are logged in a period, and its length in seconds."""


class RateLimit(logging.Filter):
    """A filter that passes at most `LINES` warnings of a kind (a message without its arguments) in `PERIOD`, and counts
    the others. So neither many clients nor a disk that stays full can fill a log."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, int]] = {}
        """Kind -> (the beginning of its period, the number of its messages in the period)."""
        self._guard = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is logged."""
        if record.levelno < logging.WARNING:
            return True
        with self._guard:
            began, count = self._kinds.get(record.msg, (record.created, 0))
            unsaid = 0
            if not began <= record.created < began + PERIOD:
                began, count, unsaid = record.created, 0, max(0, count - LINES)
            self._kinds[record.msg] = (began, count + 1)
        if unsaid:
            record.msg += f" (and {unsaid} others like it since the last such line)"
        return count < LINES


class Lines(logging.Formatter):
    """A formatter that escapes names from clients, so that a message is one line. Only a traceback adds lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the message as one line."""
        return plain(super().formatMessage(record))


class Journal(Lines):
    """A formatter for journald, which adds the time itself and reads the priority from a prefix (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record, each with its priority."""
        urgency = 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6
        return "\n".join(f"<{urgency}>{line}" for line in super().format(record).splitlines())


class RequestLines(logging.Formatter):
    """A formatter for the access log (`server.request_log`). A line has fields, the first of which is the time."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a request."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time} | vars(record)["fields"]
        return json.dumps(fields) if self._as_json else logfmt(fields)


def is_journal(file: int, environment: Mapping[str, str]) -> bool:
    """Tell whether a descriptor is the journal. Its device and inode are compared with those in JOURNAL_STREAM, because
    child processes inherit that variable even if their output is redirected."""
    with contextlib.suppress(OSError):
        found = os.fstat(file)
        return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False  # The descriptor is closed.


def log_to(place: str | None, verbose: bool, *, journal: bool, audits: bool, is_login: bool = False) -> None:
    """Send the log to a file or to syslog; with None, to standard error.

    `journal`: True if standard error is the journal. `audits`: True to log changes, too. `is_login`: True for the login
    of one user, which must work even if syslog is missing.
    """
    stream: logging.Handler
    try:
        if place is None:
            stream = logging.StreamHandler(sys.stderr)
        elif place == "syslog" and is_login and not os.path.exists(SYSLOG):
            print(f"smartserver: {NO_SYSLOG}: nothing is logged", file=sys.stderr)
            stream = logging.NullHandler()
        elif place == "syslog":
            os.stat(SYSLOG)  # Fail now; without it, Python would print an error for each line.
            stream = logging.handlers.SysLogHandler(SYSLOG)
            stream.ident = f"smartserver[{os.getpid()}]: "
        else:
            stream = _file(place)
    except OSError as error:
        what = SYSLOG if place == "syslog" else place
        raise CommandError(f"--log {place}: {what}: {error.strerror}") from None
    logging.raiseExceptions = place is None  # Do not print errors of a log file to a client's standard error.
    dated = Lines("%(asctime)s %(levelname)s %(message)s")
    stream.setFormatter(Lines() if place == "syslog" else Journal() if journal and not place else dated)
    stream.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[stream])
    if audits:
        logging.getLogger("smartserver.audit").setLevel(logging.INFO)
    paramiko = logging.getLogger("paramiko")
    paramiko.propagate = False  # Its long messages are about errors that it raises too (`sftp_login`).
    paramiko.addHandler(logging.NullHandler())  # Without a handler Python itself would print it.


def _file(path: str) -> logging.Handler:
    """Return a handler that writes to a file, and opens it again after a rotation."""
    return logging.handlers.WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")


def log_requests_to(place: str) -> None:
    """Send the line of each request to a file, or to standard output (`-`). With the prefix `json:`, each line is a
    JSON object."""
    name = place.removeprefix(AS_JSON)
    stream: logging.Handler
    try:
        stream = logging.StreamHandler(sys.stdout) if name == "-" else _file(name)
    except OSError as error:
        raise CommandError(f"--access-log {place}: {name}: {error.strerror}") from None
    logging.raiseExceptions = False  # A full disk would be a traceback on standard error for each request.
    stream.setFormatter(RequestLines(as_json=name != place))
    log = logging.getLogger("smartserver.requests")
    log.setLevel(logging.INFO)
    log.propagate = False  # Otherwise -v would put the lines into the main log too.
    log.addHandler(stream)
