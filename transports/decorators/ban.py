"""`BanTransport`: calls that rules forbid are refused, for tests that say what must not be done over a link.

A rule is a pair of patterns as of a shell, of a call and of a path from the transport the ban was put on:
`("rename", "*/lock/*")`, `("*", "packs/*")`. It has no grammar: that of bans is of `smartserver`, and about verbs.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from contextlib import AbstractContextManager

from transports.base import ReadFile, Stat, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.steps import (
    Append,
    Delete,
    Get,
    GetStat,
    ListDirectory,
    MakeDirectory,
    Put,
    ReadRanges,
    RemoveDirectory,
    Rename,
    Step,
    SyncDirectory,
)

CALLS: dict[str, type[Step] | None] = {
    "get": Get,
    "open_read": ReadRanges,
    "create": Put,
    "append": Append,
    "rename": Rename,
    "delete": Delete,
    "make_directory": MakeDirectory,
    "remove_directory": RemoveDirectory,
    "list_directory": ListDirectory,
    "stat": GetStat,
    "sync_directory": SyncDirectory,
    "lock": None,
    "try_lock": None,
}
"""Calls that can be banned -> the step that is the same."""

STEPS = {step: call for call, step in CALLS.items() if step is not None}


class CallBanned(Exception):
    """A rule forbids that call. It is no `TransportError`, which whoever tidies up suppresses: it must come through."""


class BanTransport(PassingTransport):
    """The tree of `inner`, without what the rules forbid: that is `CallBanned` and names the rule and the call.

    A rename is banned by either of its paths. Of steps those before the first that is banned are performed.
    """

    def __init__(self, inner: Transport, rules: Sequence[tuple[str, str]], *, prefix: str = "") -> None:
        """Put it on.

        Raises:
            ValueError: no call is as a rule says.
        """
        super().__init__(inner, prefix=prefix)
        self._rules = list(rules)
        for calls, _ in rules:
            if not fnmatch.filter(CALLS, calls):
                raise ValueError(f"no call is {calls!r}; there is {', '.join(CALLS)}")

    def wrap(self, inner: Transport, prefix: str) -> BanTransport:
        return BanTransport(inner, self._rules, prefix=prefix)

    def check(self, call: str, *named: str) -> None:
        """Refuse a call that a rule forbids.

        Raises:
            CallBanned: one does.
        """
        for path in map(self.full, named):
            for calls, places in self._rules:
                if fnmatch.fnmatchcase(call, calls) and fnmatch.fnmatchcase(path, places):
                    raise CallBanned(f"the rule {calls}, {places} bans {call}: {path!r}")

    def get(self, path: str) -> bytes:
        self.check("get", path)
        return self.inner.get(path)

    def open_read(self, path: str) -> ReadFile:
        self.check("open_read", path)
        return self.inner.open_read(path)

    def create(self, path: str) -> WriteFile:
        self.check("create", path)
        return self.inner.create(path)

    def append(self, path: str) -> WriteFile:
        self.check("append", path)
        return self.inner.append(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source, target)
        self.inner.rename(source, target)

    def delete(self, path: str) -> None:
        self.check("delete", path)
        self.inner.delete(path)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self.check("remove_directory", path)
        self.inner.remove_directory(path)

    def list_directory(self, path: str) -> list[str]:
        self.check("list_directory", path)
        return self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        self.check("stat", path)
        return self.inner.stat(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self.inner.sync_directory(path)

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        self.check("lock", path)
        return self.inner.lock(path, wait)

    def try_lock(self, path: str) -> AbstractContextManager[bool]:
        self.check("try_lock", path)
        return self.inner.try_lock(path)

    def perform(self, steps: Sequence[Step]) -> None:
        allowed = 0
        try:
            for step in steps:
                self.check(STEPS[type(step)], *step.paths)
                allowed += 1
        except CallBanned:
            self.inner.perform(steps[:allowed])
            raise
        self.inner.perform(steps)
