"""The lock folder: how the writers of a `folder` repository exclude each other, on a store that has only files.

A writer makes a folder of its own in `lock/`, says in it who it is, and gives it the name `lock/held`, which the store
refuses while another folder has that name. What replaces the root is written into the held folder and renamed from
there: a writer whose lock was broken has nothing left to rename, whatever it believes. No lock is broken by guess, and
who is not told that he has it looks whose it is.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from smartserver.store.format import LOCK, ROOT
from transports.base import Transport
from transports.errors import DirectoryNotEmpty, FileExists, Locked, NoSuchFile, NotADirectory, TransportError
from transports.steps import Delete, Get, GetStat, ListDirectory, MakeDirectory, Put, RemoveDirectory, Rename, Step

HELD = f"{LOCK}/held"
"""The folder of whoever has the lock."""
WHO = "info"
"""The file in it that says who that is."""
LONGEST_WHO = 4096
"""Bytes of that file that are looked at; this release's takes some 120."""
FIRST_PAUSE = 0.01
"""Seconds until the lock is looked at for the second time: about what a swap on a local disk takes."""
LONGEST_PAUSE = 0.5
"""Seconds between two looks at most: a look is two trips, and who waits should not be late by more than a swap over
a slow link takes."""
GROWTH = 1.5
"""By what a pause is longer than the one before it."""
LONG = 30.0
"""Seconds after which who has the lock looks, before he lets go of it, whether it is still his: others wait as long
before they are told who has it, and no person breaks it sooner."""


class Holder(NamedTuple):
    """Who has a lock, as he wrote it there himself."""

    user: str
    host: str
    pid: int
    since: int
    """Milliseconds since the epoch, by his clock."""
    nonce: str
    """16 random hex digits, which nobody else has."""

    @classmethod
    def myself(cls, nonce: str) -> Holder:
        """This process, from now on."""
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            user = str(os.geteuid())
        return cls(user, os.uname().nodename, os.getpid(), int(time.time() * 1000), nonce)

    def encode(self) -> bytes:
        """The content of `info`."""
        return "".join(f"{name} {value}\n" for name, value in zip(self._fields, self, strict=True)).encode()

    def __str__(self) -> str:
        try:
            since = f"{datetime.fromtimestamp(self.since // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (ValueError, OverflowError, OSError):
            since = "a time nobody knows"
        return f"{self.user} (process {self.pid} on {self.host}) since {since}"


_NUMBERS = ("pid", "since")

NOBODY = Holder("somebody", "a machine", 0, 0, "")
"""Who left no word of himself, or one that cannot be read."""


def decode(content: bytes | None) -> Holder:
    """Who `info` says has the lock; what it does not say is as in `NOBODY`."""
    said: dict[str, str] = {}
    for line in (content or b"")[:LONGEST_WHO].decode("utf-8", "replace").splitlines():
        word, _, value = line.partition(" ")
        said[word] = "".join(each if each.isprintable() else "?" for each in value)
    pid, since = (int(each) if each.isascii() and each.isdigit() else 0 for each in map(said.get, _NUMBERS, "00"))
    return Holder(said.get("user", NOBODY.user), said.get("host", NOBODY.host), pid, since, said.get("nonce", ""))


class LockFolder:
    """The folder `lock` of one repository; usable from several threads, of which one at a time holds it."""

    def __init__(self, above: Transport, path: str, randomness: Callable[[int], bytes]) -> None:
        """`path`: the repository's, below `above`."""
        self._above = above
        self._below = f"{path}/".lstrip("/")
        self._held = self._below + HELD
        self._randomness = randomness
        self._kept: set[str] = set()
        """What this process could not let go of: nobody else will."""

    @contextlib.contextmanager
    def hold(self, wait: float, first: Sequence[Step] = ()) -> Iterator[bytes | None]:
        """Hold the lock; gives the root as it was read then, None where there is none. `wait`: seconds, at most;
        `first`: what is done before, whether the lock can be had or not.

        Raises:
            Locked: another writer held it all the time.
            NoSuchFile, NotADirectory: there is no such folder.
            TransportError: the store failed; the lock is not held.
        """
        nonce = self._randomness(8).hex()
        root = self._take(nonce, wait, first)
        since = time.monotonic()
        try:
            yield root
        finally:
            self._let_go(nonce, look=time.monotonic() - since >= LONG)

    def holder(self) -> Holder | None:
        """Who has the lock; None where nobody does.

        Raises:
            TransportError: the store failed.
        """
        held, who = GetStat(self._held), Get(self._held + f"/{WHO}")
        self._above.perform([held, who])
        return None if held.result is None else decode(who.result)

    def break_lock(self, holder: Holder) -> Holder | None:
        """Take the lock from who has it, dead or alive; a live one will change nothing any more. Gives who else had it
        by then, and lost it; None where it was `holder`.

        Raises:
            NoSuchFile: nobody has it.
            TransportError: the store failed.
        """
        gone = self._below + f"{LOCK}/{self._randomness(8).hex()}"
        who = Get(f"{gone}/{WHO}")
        self._above.perform([Rename(self._held, gone), who])
        self._remove(gone)
        found = decode(who.result)
        return None if found.nonce == holder.nonce else found

    def sweep(self, old: Callable[[float], bool]) -> int:
        """Remove what dead writers left that waited for the lock; how many. `old`: whether that time of last change is
        long ago by the store's clock.

        Raises:
            TransportError: the store failed.
        """
        names = ListDirectory(self._below + LOCK)
        self._above.perform([names])
        others = [f"{names.path}/{name}" for name in names.result or ()]
        left = [GetStat(path) for path in others if path != self._held]
        self._above.perform(left)
        dead = [each.path for each in left if each.result is not None and old(each.result.modified)]
        for path in dead:
            self._remove(path)
        return len(dead)

    def _take(self, nonce: str, wait: float, first: Sequence[Step]) -> bytes | None:
        own = self._below + f"{LOCK}/{nonce}"
        end = time.monotonic() + wait
        content = Holder.myself(nonce).encode()
        steps: list[Step] = [*first, MakeDirectory(own), Put(f"{own}/{WHO}", content)]
        pause, unexplained = FIRST_PAUSE, 0
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove, own)
            while True:
                root = Get(self._below + ROOT)
                try:
                    self._above.perform([*steps, Rename(own, self._held), root])
                    undo.pop_all()
                    return root.result
                except (NoSuchFile, NotADirectory):
                    raise
                except TransportError as wrong:
                    held, ready, root = Get(self._held + f"/{WHO}"), Get(f"{own}/{WHO}"), Get(self._below + ROOT)
                    self._above.perform([held, ready, root])
                    there = decode(held.result)
                    if there.nonce == nonce:  # The answer was lost, or what came after it.
                        undo.pop_all()
                        return root.result
                    refused = held.result is not None or isinstance(wrong, DirectoryNotEmpty | FileExists)
                    unexplained = 0 if refused else unexplained + 1
                    if ready.result != content or unexplained > 1:
                        raise
                steps = []
                if there.nonce in self._kept:
                    self._let_go(there.nonce, look=False)
                    if there.nonce not in self._kept:
                        continue
                left = end - time.monotonic()
                if left <= 0:
                    raise Locked(self._below + LOCK, int(wait), str(there))
                time.sleep(min(left, pause * random.uniform(0.5, 1)))
                pause = min(pause * GROWTH, LONGEST_PAUSE)

    def _let_go(self, nonce: str, *, look: bool) -> None:
        """Free the lock; where the store fails, the next writer of this process tries again. `look`: first, whether it
        is that one still."""
        own = self._below + f"{LOCK}/{nonce}"
        with contextlib.suppress(TransportError):
            if not look or self._has(nonce):
                self._above.perform([Rename(self._held, own), Delete(f"{own}/{WHO}"), RemoveDirectory(own)])
            self._kept.discard(nonce)
            return
        try:
            (self._kept.add if self._has(nonce) else self._kept.discard)(nonce)
        except TransportError:
            self._kept.add(nonce)
        self._remove(own)

    def _has(self, nonce: str) -> bool:
        who = Get(self._held + f"/{WHO}")
        self._above.perform([who])
        return decode(who.result).nonce == nonce

    def _remove(self, path: str) -> None:
        """Remove a folder that is not the held one, as far as that works: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            names = ListDirectory(path)
            self._above.perform([names])
            if names.result is not None:
                below: list[Step] = [Delete(f"{path}/{name}") for name in names.result]
                self._above.perform([*below, RemoveDirectory(path)])
