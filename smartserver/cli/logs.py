"""The log of a server on standard error: dated lines, or, where that is the systemd journal, lines as it reads them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping


class Journal(logging.Formatter):
    """Lines for journald, which dates them itself and takes how urgent one is from its start (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        """A line, or several where there is a traceback."""
        urgency = 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6
        return "\n".join(f"<{urgency}>{line}" for line in super().format(record).splitlines())


def is_journal(file: int, environment: Mapping[str, str]) -> bool:
    """Whether a descriptor is the journal: systemd names the file, and children inherit the name, redirected or not."""
    with contextlib.suppress(OSError):
        found = os.fstat(file)
        return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False  # It is closed.


def log_to_stderr(verbose: bool, *, journal: bool) -> None:
    """Send what is logged there, in lines of its kind."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(Journal() if journal else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[stream])
    logging.getLogger("paramiko").propagate = False  # What it complains of, at length, is raised too (`sftp_login`).
