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
"""The socket of syslog, which systemd gives to the journal."""

NO_SYSLOG = f"there is no syslog on this machine ({SYSLOG})"

AS_JSON = "json:"

LINES, PERIOD = 10, 60.0
"""Warnings and errors of one kind that are logged in so many seconds."""


class RateLimit(logging.Filter):
    """Passes at most `LINES` warnings of a kind (a message without its arguments) in `PERIOD`, and counts the others:
    neither a flood of clients nor a disk that stays full fills a log."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, int]] = {}
        """For each kind when its period began, and how many came in it."""
        self._guard = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """True if a line is logged."""
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
    """One line for a record, whatever names a client put into its message; a traceback has further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line."""
        return plain(super().formatMessage(record))


class Journal(Lines):
    """Lines for journald, which dates them itself and takes how urgent one is from its start (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        """A line, or several where there is a traceback."""
        urgency = 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6
        return "\n".join(f"<{urgency}>{line}" for line in super().format(record).splitlines())


class RequestLines(logging.Formatter):
    """Lines of the access log (`server.request_log`): fields, the first of them the time."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """A line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time} | vars(record)["fields"]
        return json.dumps(fields) if self._as_json else logfmt(fields)


def is_journal(file: int, environment: Mapping[str, str]) -> bool:
    """True if a descriptor is the journal: systemd names the file, and children inherit the name, redirected or not."""
    with contextlib.suppress(OSError):
        found = os.fstat(file)
        return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False  # It is closed.


def log_to(place: str | None, verbose: bool, *, journal: bool, audits: bool, is_login: bool = False) -> None:
    """Send what is logged to a file, to syslog, or (None) to standard error, which `journal` says is the journal.

    `audits`: with the lines on changes. `is_login`: one user logs in, which a missing syslog does not prevent.
    """
    stream: logging.Handler
    try:
        if place is None:
            stream = logging.StreamHandler(sys.stderr)
        elif place == "syslog" and is_login and not os.path.exists(SYSLOG):
            print(f"smartserver: {NO_SYSLOG}: nothing is logged", file=sys.stderr)
            stream = logging.NullHandler()
        elif place == "syslog":
            os.stat(SYSLOG)  # Python goes on without it, and complains of each line on standard error.
            stream = logging.handlers.SysLogHandler(SYSLOG)
            stream.ident = f"smartserver[{os.getpid()}]: "
        else:
            stream = _file(place)
    except OSError as error:
        what = SYSLOG if place == "syslog" else place
        raise CommandError(f"--log {place}: {what}: {error.strerror}") from None
    logging.raiseExceptions = place is None  # A full disk is no news for the client whose standard error this is.
    dated = Lines("%(asctime)s %(levelname)s %(message)s")
    stream.setFormatter(Lines() if place == "syslog" else Journal() if journal and not place else dated)
    stream.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[stream])
    if audits:
        logging.getLogger("smartserver.audit").setLevel(logging.INFO)
    paramiko = logging.getLogger("paramiko")
    paramiko.propagate = False  # What it complains of, at length, is raised too (`sftp_login`).
    paramiko.addHandler(logging.NullHandler())  # Without a handler Python itself would print it.


def _file(path: str) -> logging.Handler:
    """A file, which is opened again once it was rotated."""
    return logging.handlers.WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")


def log_requests_to(place: str) -> None:
    """Send the line of each request to a file, or to standard output (`-`). `json:` before it makes each line a JSON
    object."""
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
    log.propagate = False  # With -v they would be in the other log too.
    log.addHandler(stream)
