"""`-Dhpss`: a line for each call in Breezy's log, and at the end of the command Breezy's own line of how many.
`-Dhpss-ban=RULE[,RULE]`: no call that a rule bans.
"""

from __future__ import annotations

import functools
import time

import breezy
from breezy import trace
from breezy.errors import CommandError
from breezy.i18n import gettext

from smartserver.client.plain import plain
from smartserver.trace import flags, text
from smartserver.trace.recorder import CallRecord, Recorder
from smartserver.vcs.bzr.compat import debug_flags
from smartserver.wire.observer import Observer


def observers(where: str, more: str, behind: str) -> list[Observer]:
    """Those of a server's connection that the user has asked for, by `-D` or by `more` flags; `behind`: as of
    `text.summary`.

    Raises:
        CommandError: a flag in `more`, or a rule, is none.
    """
    try:
        flags.check(more, f"{flags.VARIABLE} or hpss.debug")
    except flags.BadFlag as wrong:
        raise CommandError(str(wrong)) from None
    given = debug_flags()
    words = {*given, *more.split(",")}
    found: list[Observer] = []
    if not words.isdisjoint(flags.KNOWN):
        show = functools.partial(_show, in_detail="hpssdetail" in words)
        recorder = Recorder(finished=show, stacks="hpssvfs" in words)
        breezy.get_global_state().exit_stack.callback(_close, recorder, where, behind)
        found.append(recorder)
    banning = [each for each in (*sorted(given), more) if flags.BAN in each]
    if banning:
        from smartserver.trace.bans.every import watcher  # Loaded where something is banned.
        from smartserver.trace.bans.rule import BadRule

        try:
            found.append(watcher(banning))
        except BadRule as wrong:
            raise CommandError(str(wrong)) from None
    return found


def told(more: str) -> list[str]:
    """The same, as a server that is started for files behind a link is told them (`smartserver -D`)."""
    parts = [flags.parted(each) for each in (*sorted(debug_flags()), more)]
    words = {word for each, _ in parts for word in each}
    rules = [rule for _, each in parts for rule in each]
    shows = [word for word in flags.KNOWN if word in words]
    return [*shows, *([flags.BAN + ",".join(rules)] if rules else [])]


def _show(record: CallRecord, *, in_detail: bool) -> None:
    for line in text.lines(record, in_detail=in_detail):
        trace.mutter("%s", plain(line))


def _close(recorder: Recorder, where: str, behind: str) -> None:
    if recorder.calls:
        calls = len(recorder.calls)
        trace.note(gettext("HPSS calls: {0} ({1} vfs) {2}").format(calls, recorder.vfs_calls, where))
        trace.mutter("%s", text.summary(recorder, time.monotonic(), behind))
