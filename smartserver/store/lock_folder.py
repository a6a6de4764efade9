"""The lock folder: how the writers of a `folder` repository exclude each other, on a store that has only files.

A writer makes a folder of its own in `lock/`, with one in it that has its nonce for a name, and gives it the name
`lock/held`, which the store refuses while another has that name and is not empty. Everything the holder does goes
through `lock/held/<nonce>`: what replaces the root is written there and renamed from there, and to let go is to move
that folder out. So a writer whose lock was broken, whatever he believes, has nothing to rename, and frees no other's.
No lock is broken by guess, and who is not told that he has it looks whose it is.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from smartserver.errors import OutcomeUnknown
from smartserver.store.format import LOCK, ROOT
from transports import steps
from transports.base import Step, Transport
from transports.errors import (
    CodedError,
    DirectoryNotEmpty,
    Locked,
    NoSuchFile,
    NotADirectory,
    TransportError,
    TransportFailed,
)

HELD = f"{LOCK}/held"
"""The folder that holds the folder of whoever has the lock; where it is empty, nobody has."""
WHO = "info"
"""The file in the holder's folder that says who that is."""
NONCE = re.compile(r"[0-9a-f]{16}")
"""The name of a writer's folder."""
LONGEST_WHO = 4096
"""Bytes of that file that are looked at; this release's takes some 120."""
FIRST_PAUSE = 0.01
"""Seconds until the lock is looked at for the second time: about what a swap on a local disk takes."""
LONGEST_PAUSE = 0.5
"""Seconds between two looks at most: a look is two trips, and who waits should not be late by more than a swap over
a slow link takes."""
GROWTH = 1.5
"""By what a pause is longer than the one before it."""


class Holder(NamedTuple):
    """Who has a lock, as he wrote it there himself; what is not known is empty."""

    user: str
    host: str
    pid: int
    since: int
    """Milliseconds since the epoch, by his clock."""
    nonce: str
    """16 random hex digits, which nobody else has: the name of his folder."""

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
        said = {"user": self.user, "host": self.host, "pid": self.pid, "since": self.since}
        return "".join(f"{word} {value}\n" for word, value in said.items()).encode()

    def __str__(self) -> str:
        process = f"process {self.pid}" if self.pid else ""
        where = " ".join(filter(None, (process, f"on {self.host}" if self.host else "")))
        return "".join((self.user or "somebody who left no name", f" ({where})" if where else "", self._when()))

    def _when(self) -> str:
        try:
            when = f"{datetime.fromtimestamp(self.since // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        except (ValueError, OverflowError, OSError):
            when = "a time nobody knows"
        return f" since {when}" if self.since else ""


class HeldLock(NamedTuple):
    """A lock that is held."""

    root: bytes | None
    """The root as it was read then; None where there is none."""
    folder: str = ""
    """What the names of the holder's temporary files begin with, from the repository's folder on."""
    missing: str | None = None
    """A file that the holder needs, and that was gone then."""


class HolderCheck:
    """What a writer looks at once it has the lock, in one go."""

    def __init__(self, path: str, needed: Sequence[str]) -> None:
        """`path`: the repository's; `needed`: files that the holder needs, from the same folder on."""
        self._root = steps.Get(f"{path}/{ROOT}".lstrip("/"))
        self._needed = [steps.GetStat(each) for each in needed]
        self.steps: list[Step] = [self._root, *self._needed]

    def held(self, folder: str = "") -> HeldLock:
        """What was seen; `folder`: as of `HeldLock`."""
        missing = next((each.path for each in self._needed if each.result is None), None)
        return HeldLock(self._root.result, folder, missing)


def decode(content: bytes | None, nonce: str) -> Holder:
    """Who `info` says has the lock, in the folder of that name."""
    said: dict[str, str] = {}
    for line in (content or b"")[:LONGEST_WHO].decode("utf-8", "replace").splitlines():
        word, _, value = line.partition(" ")
        said[word] = "".join(each if each.isprintable() else "?" for each in value)
    numbers = [said.get(word, "") for word in ("pid", "since")]
    pid, since = (int(each) if each.isascii() and each.isdigit() else 0 for each in numbers)
    return Holder(said.get("user", ""), said.get("host", ""), pid, since, nonce)


class LockFolder:
    """The folder `lock` of one repository; usable from several threads, of which one at a time holds it."""

    def __init__(self, above: Transport, path: str, randomness: Callable[[int], bytes]) -> None:
        """`path`: the repository's, below `above`."""
        self._above = above
        self._path = path
        self._below = f"{path}/".lstrip("/")
        self._held = self._below + HELD
        self._randomness = randomness
        self._kept: set[str] = set()
        """What this process may not have let go of, or not removed: nobody else will before it is a day old."""

    @contextlib.contextmanager
    def hold(
        self, wait: float | Callable[[], float], first: Sequence[Step] = (), needed: Sequence[str] = ()
    ) -> Iterator[HeldLock]:
        """Hold the lock. `first`: what is done before, whether the lock can be had or not; `wait`: seconds, at most,
        from when that is done and the lock is refused, or what says then how many; `needed`: as of `HolderCheck`.

        Raises:
            Locked: another writer held it all the time.
            NoSuchFile, NotADirectory: there is no such folder.
            TransportError: the store failed; the lock is not held.
            CodedError: as `_let_go`, whatever was done while it was held.
        """
        for left in list(self._kept):
            self._let_go(left)
        nonce = self._randomness(8).hex()
        try:
            yield self._take(nonce, wait, first, needed).held(f"{HELD}/{nonce}/")
        finally:
            try:
                self._let_go(nonce)
            except BaseException:  # Interrupted in here: who ends now would leave it held.
                self._let_go(nonce)
                raise

    def holder(self) -> Holder | None:
        """Who has the lock; None where nobody does."""
        names = steps.ListDirectory(self._held)
        self._above.perform([names])
        nonce = _holding(names.result)
        return None if nonce is None else self._who(nonce)

    def _who(self, nonce: str) -> Holder:
        who = steps.Get(f"{self._held}/{nonce}/{WHO}")
        self._above.perform([who])
        return decode(who.result, nonce)

    def break_lock(self, holder: Holder) -> None:
        """Take the lock from who has it, dead or alive; a live one will change nothing any more.

        Raises:
            NoSuchFile: that one does not have it.
        """
        gone = self._below + f"{LOCK}/{self._randomness(8).hex()}"
        self._above.perform([steps.Rename(f"{self._held}/{holder.nonce}", gone)])
        self._tidy()
        self._remove(gone)

    def sweep(self, names: Sequence[str], old: Callable[[float], bool]) -> int:
        """Remove what dead writers left that waited for the lock; how many. `names`: what is in it; `old`: whether that
        time of last change is long ago by the store's clock."""
        others = [f"{self._below}{LOCK}/{name}" for name in names]
        left = [steps.GetStat(path) for path in others if path != self._held]
        self._above.perform(left)
        dead = [each.path for each in left if each.result is not None and old(each.result.modified)]
        for path in dead:
            self._remove(path)
        return len(dead)

    def _take(
        self, nonce: str, wait: float | Callable[[], float], first: Sequence[Step], needed: Sequence[str]
    ) -> HolderCheck:
        own = self._below + f"{LOCK}/{nonce}"
        inner = f"{own}/{nonce}"
        seconds = end = 0.0
        content = Holder.myself(nonce).encode()
        making: list[Step] = [*first, steps.MakeDirectory(own), steps.MakeDirectory(inner)]
        making.append(steps.Put(f"{inner}/{WHO}", content))
        pause, unexplained, missed = FIRST_PAUSE, 0, False
        while True:
            look = HolderCheck(self._path, needed)
            try:
                self._above.perform([*making, steps.Rename(own, self._held), *look.steps])
                return look
            except TransportError as wrong:
                if making and isinstance(wrong, NoSuchFile | NotADirectory):
                    raise
                names, ready = steps.ListDirectory(self._held), steps.Get(f"{inner}/{WHO}")
                look = HolderCheck(self._path, needed)
                self._above.perform([names, ready, *look.steps])
                there = _holding(names.result)
                if there == nonce:  # The answer was lost, or what came after it.
                    return look
                refused = isinstance(wrong, DirectoryNotEmpty) or self._is_held(wrong)
                if making and first and not refused:
                    raise  # The last step was not come to, as far as is known: nor may the first have been done.
                unexplained = 0 if refused or there is not None else unexplained + 1
                if ready.result != content and isinstance(wrong, NoSuchFile | NotADirectory) and look.held().root:
                    why = "the lock was broken before its holder knew that he had it"
                    raise TransportFailed(self._below + LOCK, why) from wrong
                if ready.result != content or unexplained > 1:
                    raise
            if making:
                making, seconds = [], wait() if callable(wait) else wait
                end = time.monotonic() + seconds
                if callable(wait):
                    continue  # That can have taken long.
            if names.result == []:
                self._tidy()  # For a store that refuses to replace even an empty folder.
            missed = there is None and not missed
            if missed:
                continue  # It was let go of meanwhile.
            if there in self._kept:
                self._let_go(there)
                if there not in self._kept:
                    continue
            left = end - time.monotonic()
            if left <= 0:
                who = decode(None, "") if there is None else self._who(there)
                raise Locked(self._below + LOCK, int(seconds), str(who))
            time.sleep(min(left, pause * random.uniform(0.5, 1)))
            pause = min(pause * GROWTH, LONGEST_PAUSE)

    def _is_held(self, wrong: TransportError) -> bool:
        """Whether it is the last step of taking the lock that a store speaks of."""
        named = str(getattr(wrong, "path", ""))
        return named == self._held or named.endswith(f"/{self._held}")

    def _let_go(self, nonce: str) -> None:
        """Free the lock where that writer has it, and remove what he made to get it. Where the store fails, the next
        writer of this process tries again."""
        own, mine = self._below + f"{LOCK}/{nonce}", f"{self._held}/{nonce}"
        self._kept.add(nonce)  # First: who is interrupted in here may have the lock still.
        for _ in range(2):
            with contextlib.suppress(TransportError):
                free = steps.Rename(mine, own)
                try:
                    tidying = [steps.RemoveDirectory(self._held), steps.Delete(f"{own}/{WHO}")]
                    self._above.perform([free, *tidying, steps.RemoveDirectory(own)])
                except (TransportError, OutcomeUnknown):
                    raise
                except CodedError:  # The request was refused, and no step of it done.
                    self._above.perform([free])
                    raise
                self._kept.discard(nonce)
                return
            self._remove(own)  # Before the look: then no rename that is under way can make it the held one.
            there = steps.GetStat(mine)
            with contextlib.suppress(TransportError):
                self._above.perform([there])
                if there.result is not None:
                    continue
                self._kept.discard(nonce)
                self._tidy()
            return

    def _tidy(self) -> None:
        """Remove the folder `held` where nobody is in it."""
        with contextlib.suppress(TransportError):
            self._above.perform([steps.RemoveDirectory(self._held)])

    def _remove(self, path: str) -> None:
        """Remove a folder that is not in the held one, as far as that works: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            names = steps.ListDirectory(path)
            self._above.perform([names])
            if names.result is not None:
                folders = [name for name in names.result if NONCE.fullmatch(name)]
                for name in folders:
                    self._remove(f"{path}/{name}")
                below: list[Step] = [steps.Delete(f"{path}/{name}") for name in names.result if name not in folders]
                self._above.perform([*below, steps.RemoveDirectory(path)])


def _holding(names: Sequence[str] | None) -> str | None:
    """Whose folder is among what is in the held one; None where nothing is."""
    return min(names or (), key=lambda name: not NONCE.fullmatch(name), default=None)
