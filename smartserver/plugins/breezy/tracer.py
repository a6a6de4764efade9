"""`-Dhpss`: a line for each call in Breezy's log, and at the end of the command Breezy's own line of how many.
`-Dhpss-ban=RULE[,RULE]`: no call that a rule bans. `-Dhpss-json=FILE`: a trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import breezy
from breezy import trace
from breezy.errors import CommandError
from breezy.i18n import gettext

from smartserver.client.plain import plain
from smartserver.trace.flags import VARIABLE, BadFlag, Flags, read
from smartserver.trace.tracing import Tracing
from smartserver.vcs.bzr.compat import debug_flags


def flags_of(more: str) -> Flags:
    """What the user has asked for, by `-D` or by `more` flags.

    Raises:
        CommandError: a flag in `more` is none.
    """
    try:
        read([more]).check(f"{VARIABLE} or hpss.debug")
    except BadFlag as wrong:
        raise CommandError(str(wrong)) from None
    return read([*sorted(debug_flags()), more])


def tracing_of(where: str, flags: Flags, behind: str, environment: Mapping[str, str]) -> Tracing:
    """That of a server's connection, until the command ends. `behind`: as of `text.summary`; `environment`: as of
    `Tracing`.

    Raises:
        CommandError: a rule is none, or the trace cannot be written.
    """
    try:
        tracing = Tracing(flags, _show, "brz", environment, behind, is_host=True)
    except BadFlag as wrong:
        raise CommandError(str(wrong)) from None
    at_end = breezy.get_global_state().exit_stack
    at_end.callback(_close, tracing, where)
    at_end.enter_context(tracing.listening())
    return tracing


def _show(lines: str) -> None:
    for line in lines.splitlines():
        trace.mutter("%s", plain(line))


def _close(tracing: Tracing, where: str) -> None:
    recorder = tracing.recorder
    if recorder is not None and recorder.calls:
        if tracing.shows:
            calls = len(recorder.calls)
            trace.note(gettext("HPSS calls: {0} ({1} vfs) {2}").format(calls, recorder.vfs_calls, where))
        tracing.close()
    else:
        tracing.end()
