"""`-Dhpss`: a line for each call in Breezy's log, and at the end of the command Breezy's own line of how many."""

from __future__ import annotations

import time

import breezy
from breezy import trace
from breezy.i18n import gettext

from smartserver.client.plain import plain
from smartserver.trace import text
from smartserver.trace.recorder import CallRecord, Recorder
from smartserver.vcs.brz_compat import is_debugged

FLAGS = ("hpss", "hpssdetail", "hpssvfs")


def tracer(where: str) -> Recorder | None:
    """A recorder of a server's connection, where the user has asked for one."""
    if not any(is_debugged(flag) for flag in FLAGS):
        return None
    recorder = Recorder(finished=_show, stacks=is_debugged("hpssvfs"))
    breezy.get_global_state().exit_stack.callback(_close, recorder, where)
    return recorder


def _show(record: CallRecord) -> None:
    for line in text.lines(record):
        trace.mutter("%s", plain(line))
    if is_debugged("hpssdetail"):
        for verb, arguments in zip(record.verbs, record.arguments, strict=True):
            trace.mutter("    %s(%s)", verb, plain(arguments))


def _close(recorder: Recorder, where: str) -> None:
    if recorder.calls:
        calls = len(recorder.calls)
        trace.note(gettext("HPSS calls: {0} ({1} vfs) {2}").format(calls, recorder.vfs_calls, where))
        trace.mutter("%s", text.summary(recorder, time.monotonic()))
