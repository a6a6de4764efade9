"""`smartserver` and git's remote program as forked processes: a start takes a tenth of the time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forks import Forks

FORKS = Forks(
    "encodings.idna",
    "resource",
    "smartserver.cli.config",
    "smartserver.cli.entry",
    "smartserver.cli.git_remote",
    "smartserver.cli.git_remote_run",
    "smartserver.cli.ping",
    "smartserver.cli.serve",
    "smartserver.cli.verify",
    "smartserver.records.bases",
    "smartserver.server.site",
    "smartserver.server.startup",
    "smartserver.server.stdio",
    "smartserver.server.tcp",
    "smartserver.server.threads",
    "smartserver.trace.bans",
    "smartserver.vcs.git.insert",
    "smartserver.vcs.git.plan",
    "smartserver.vcs.git.read",
    "smartserver.vcs.git.refs",
    "sysconfig",
    "transports.local",
    "transports.s3",
    "transports.sftp",
    "twisted.internet.default",
    "zstandard",
)
"""Whose start is not what a test is about; what heeds a variable of Python's, a group or a limit is started as ever."""


def with_forked(path: str) -> str:
    """A search path where `git-remote-hpss` and `smartserver` are forked ones."""
    (folder,) = {FORKS.stand_in(Path(sys.executable).with_name(name)) for name in ("git-remote-hpss", "smartserver")}
    return f"{folder}{os.pathsep}{path}"
