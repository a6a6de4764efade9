"""Notifies receivers (hooks with `after` or `url`) of committed changes.

The log is the only queue. A cursor (`store.cursor`) is the position up to which a receiver was notified. The receiver
gets the later entries of the newest state in order, one at a time. If a receiver fails, the server retries, after a
longer wait each time. So each change is delivered at least once, by any server of the store. If the entries do not
reach back to the cursor, or there is no cursor yet, the receiver gets the current value of all refs.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from smartserver.errors import NoSuchRepository
from smartserver.server.hook_input import change_fields, ref_fields
from smartserver.server.hook_process import run_command
from smartserver.server.hook_rules import Hook
from smartserver.server.hook_url import ReceiverFailed, post
from smartserver.server.hooks import Hooks
from smartserver.store.cursor import CursorContent, CursorFile
from smartserver.store.history import LogEntry
from smartserver.store.model import KnownVersion
from smartserver.store.repository import PackRepository
from smartserver.store.state import State
from transports.errors import CodedError

log = logging.getLogger("smartserver")

THREADS: Final = 4
"""The most receivers that are notified at a time."""

FIRST_WAIT: Final = 1.0
"""Seconds until a receiver that failed is tried again; the wait doubles with each failure."""
LONGEST_WAIT: Final = 300.0

OTHER_WAIT: Final = 5.0
"""Seconds until this server checks again a receiver that another server is notifying."""

LONGEST_STOP: Final = 30.0
"""The most seconds that a stopping process waits for receivers."""

LEASE_MARGIN: Final = 20
"""Seconds by which a lease is longer than the time limit of its receiver."""

REPOSITORY: Final = "SMARTSERVER_REPOSITORY"
"""The environment variable with the folder of the repository, for commands of hooks."""


class Telling(NamedTuple):
    """Messages about changes up to a version, and the position of the cursor after their delivery."""

    messages: list[dict[str, object]]
    position: KnownVersion


def pending(path: str, state: State, position: KnownVersion | None) -> Iterator[Telling]:
    """Yield the messages for a receiver that was notified of everything up to a position."""
    if state.is_incomplete:  # It is shown to nobody.
        return
    if not state.continues(position):
        whole: dict[str, object] = {"path": path, "vcs": state.vcs, "version": state.version}
        whole["repository"] = "whole" if state.exists else "deleted"
        yield Telling([whole | {"refs": ref_fields(state)}], state.known())
        return
    for version, entries in groupby(state.history.after(position.version), attrgetter("version")):
        told = [_message(path, state, entry) for entry in entries if entry.changes]
        if told:
            yield Telling(told, state.known(version))


def _message(path: str, state: State, entry: LogEntry) -> dict[str, object]:
    return {
        "path": path,
        "vcs": state.vcs,
        "user": entry.user,
        "request": entry.request.hex(),
        "repository": "changed",
        "version": entry.version,
        "time": entry.time / 1000,
        "options": list(entry.options),
        "changes": list(change_fields(state.vcs, entry.changes)),
    }


def tell(hook: Hook, message: Mapping[str, object], environment: Mapping[str, str], store: str | None) -> None:
    """Send one message to the receiver of a hook. `store`: the folder of the repository; None if the repository is in
    no folder.

    Raises:
        ReceiverFailed: the receiver did not accept the message.
    """
    try:
        if hook.url:
            post(hook.url, json.dumps(message).encode(), hook.secret, hook.time_limit)
        else:
            _run(hook, message, environment, store)
    except OSError as error:
        raise ReceiverFailed(error.strerror or str(error)) from error


def _run(hook: Hook, message: Mapping[str, object], environment: Mapping[str, str], store: str | None) -> None:
    place = Path(tempfile.mkdtemp(prefix="smartserver-hook-"))
    try:
        where = {} if store is None else {REPOSITORY: os.path.abspath(store)}
        ended = run_command(hook.after, message, {**environment, **where}, place, hook.time_limit)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if ended.why:
        raise ReceiverFailed(ended.why)


def deliver(repository: PackRepository, hook: Hook, environment: Mapping[str, str], own: bytes) -> bool:
    """Notify a receiver of all changes since its cursor. Return False if another server is doing so. `own`: the id of
    this server.

    Raises:
        ReceiverFailed: the receiver did not accept a message.
        CodedError: the store failed.
    """
    file = CursorFile(repository.folder, hook.receiver, repository.randomness)
    lease = hook.time_limit + LEASE_MARGIN
    cursor = file.read()
    while True:
        try:
            state = repository.log.look().state
        except NoSuchRepository:
            return True
        todo = list(pending(repository.path, state, cursor.content.position))
        if not todo:
            return True
        if file.is_held(cursor, own):
            return False
        moved = file.move(cursor, CursorContent(cursor.content.position, own, lease))
        try:
            for at, telling in enumerate(todo, 1):
                if moved is None:
                    return False
                cursor = moved
                for message in telling.messages:
                    tell(hook, message, environment, repository.folder.local_folder())
                holder, seconds = (b"", 0) if at == len(todo) else (own, lease)
                moved = file.move(cursor, CursorContent(telling.position, holder, seconds))
        except ReceiverFailed:
            file.move(cursor, CursorContent(cursor.content.position))
            raise
        if moved is None:
            return False
        cursor = moved


class Deliveries:
    """The receivers of change notifications, and the threads that notify them. All methods may be called from any
    thread."""

    def __init__(
        self,
        hooks: Hooks,
        find: Callable[[str], PackRepository],
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[PackRepository, Hook, Mapping[str, str], bytes], bool] = deliver,
    ) -> None:
        """`find`: returns the repository at a path."""
        self._hooks = hooks
        self._find = find
        self._clock = clock
        self._work = work
        self._own = os.urandom(8)
        self._changed = threading.Condition()
        self._due: dict[tuple[str, bytes], float] = {}
        """The times at which receivers are due to be notified, by path and receiver."""
        self._failed: dict[tuple[str, bytes], int] = {}
        """The number of failures since the last success, by path and receiver."""
        self._busy: set[tuple[str, bytes]] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def add(self, path: str) -> None:
        """Schedule the receivers of a repository, so that they are notified of its new changes."""
        try:
            hooks = self._hooks.receivers(path)
        except CodedError as error:
            log.warning("the hooks of %s were not called for a change: %s", path, error)
            return
        for hook in hooks:
            self._later(path, hook.receiver, 0.0)

    def stop(self) -> None:
        """Make the deliveries that are due now, once, and end the threads; wait at most `LONGEST_STOP` seconds. A
        delivery that fails is made by another server, or by this one after its next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + LONGEST_STOP
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _later(self, path: str, receiver: bytes, seconds: float) -> None:
        with self._changed:
            due = self._clock() + seconds
            key = path, receiver
            self._due[key] = min(due, self._due.get(key, due))
            if not self._stopping and len(self._threads) < THREADS:
                thread = threading.Thread(target=self._loop, name=f"deliveries_{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _loop(self) -> None:
        while (key := self._next()) is not None:
            try:
                wait = self._deliver(*key)
            except Exception:
                # A bug. The thread must not end, and the receiver is told once the bug is fixed.
                log.exception("internal error in a delivery for %s", key[0])
                wait = LONGEST_WAIT
            with self._changed:
                self._busy.discard(key)
                self._changed.notify()
            if wait is not None:
                self._later(*key, wait)

    def _next(self) -> tuple[str, bytes] | None:
        """Wait for the next receiver that is due. Return its path and id; None if none is due and the server is
        stopping."""
        with self._changed:
            while True:
                waiting = {key: due for key, due in self._due.items() if key not in self._busy}
                key = min(waiting, key=waiting.__getitem__, default=None)
                seconds = None if key is None else waiting[key] - self._clock()
                if key is not None and seconds is not None and seconds <= 0:
                    del self._due[key]
                    self._busy.add(key)
                    return key
                if self._stopping:
                    return None
                self._changed.wait(seconds)

    def _deliver(self, path: str, receiver: bytes) -> float | None:
        """Notify a receiver. Return the seconds until a retry is due; None if no retry is needed."""
        key = path, receiver
        hook: Hook | None = None
        try:
            hook = next((each for each in self._hooks.receivers(path) if each.receiver == receiver), None)
            if hook is None or self._work(self._find(path), hook, self._hooks.environment, self._own):
                self._failed.pop(key, None)
                return None
            return OTHER_WAIT
        except (ReceiverFailed, CodedError) as error:
            failed = self._failed[key] = self._failed.get(key, 0) + 1
            wait = min(FIRST_WAIT * float(1 << min(failed - 1, 20)), LONGEST_WAIT)
            what = hook.url or hook.after[0] if hook is not None else receiver.hex()
            said = "delivery of changes of %s to the hook %s failed, retry in %.0f s: %s"
            log.warning(said, path, what, wait, error)
            return wait
