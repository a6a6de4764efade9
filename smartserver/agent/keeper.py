"""The keeper: holds the connections of a user between commands, and neither reads nor writes them.

The keeper has one thread and starts no process. If anything arrives on a held connection, even its end, the connection
is closed, because a server has nothing to send on a connection without an open request.
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from smartserver.agent.address import NoAgent
from smartserver.agent.messages import (
    Borrow,
    Forget,
    Give,
    Held,
    HeldLine,
    Lent,
    Message,
    Status,
    Stop,
    close_all,
    decode_message,
    receive,
    send,
)
from smartserver.agent.peer import check_user
from smartserver.agent.start import BACKLOG

IDLE = 600.0
"""Seconds for which a connection is held, and for which an unused agent lives."""

MOST_OF_SERVER = 8
"""The most connections under one key. Each concurrent command needs one."""

MOST = 64
"""The most connections to all servers."""

ASLEEP = 1.0
"""If the machine slept for this many seconds, held connections are treated as lost, because routers drop them without
notice."""

TIME_TO_SAY = 1.0
"""Seconds that a command has to send its message, because other commands wait meanwhile."""

PAUSE = 0.1
"""Seconds between two attempts to accept a command while the process has no free descriptor."""


class Kept(NamedTuple):
    """A held connection. `since`: the time when it was given, in seconds of the monotonic clock."""

    given: Give
    descriptors: list[int]
    """The descriptors of the connection; the one to read from comes first."""
    since: float
    slept: float
    """The seconds that this machine had slept by `since`."""


def seconds_slept() -> float:
    """Return the seconds that this machine has slept since its start: the difference of two clocks
    (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Keeper:
    """Serves one listening socket until a `Stop` is received, the zygote (`cli.zygote`) ends, or no message is received
    for `IDLE` seconds."""

    def __init__(
        self,
        listener: socket.socket,
        clock: Callable[[], float] = time.monotonic,
        slept: Callable[[], float] = seconds_slept,
        zygote: socket.socket | None = None,
    ) -> None:
        """`zygote`: a connection to the zygote. When the connection ends, the keeper ends, so that the next command
        starts both processes."""
        self._listener = listener
        self._zygote = zygote
        self._clock = clock
        self._slept = slept
        self._kept: list[Kept] = []
        """The held connections, the newest last."""
        self._used = clock()
        self._stopping = False

    def run(self) -> None:
        """Serve until the end, then close all connections."""
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)  # Commands see this process from now on, not the maker of the socket.
        with self._listener:
            while not self._stopping and self._clock() - self._used < IDLE:
                self.turn()
        self._close(self._kept)

    def turn(self) -> None:
        """Wait for the next message, end of a connection or timeout, and handle it."""
        poll = select.poll()
        poll.register(self._listener.fileno(), select.POLLIN)
        if self._zygote is not None:
            poll.register(self._zygote.fileno(), select.POLLIN)
        owner = {number: kept for kept in self._kept for number in kept.descriptors}
        for number in owner:
            poll.register(number, select.POLLIN)
        first = min([self._used, *(kept.since for kept in self._kept)])
        found = poll.poll(max(0, math.ceil((first + IDLE - self._clock()) * 1000)))
        ended = [owner[number] for number, _ in found if number in owner]
        now = self._clock()
        self._close([kept for kept in self._kept if kept in ended or now - kept.since >= IDLE])
        ready = [number for number, _ in found]
        if self._zygote is not None and self._zygote.fileno() in ready:
            self._stopping = True
        elif self._listener.fileno() in ready:
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # The command is gone already, or there is no descriptor left.
            if not self._kept:
                time.sleep(PAUSE)
            self._close(self._kept[:1])
            return
        with connection:
            connection.settimeout(TIME_TO_SAY)
            try:
                check_user(connection)
                message, descriptors = receive(connection, decode_message)
            except (NoAgent, OSError):
                return
            self._used = self._clock()
            try:
                self._answer(connection, message, descriptors)
            except OSError:  # The command did not wait.
                return

    def _answer(self, connection: socket.socket, message: Message, descriptors: list[int]) -> None:
        match message:
            case Give():
                self._hold(message, descriptors)
                return
            case Borrow():
                self._lend(connection, message.key)
            case Status():
                now = self._clock()
                send(
                    connection, Held(os.getpid(), [HeldLine(each.given.where, now - each.since) for each in self._kept])
                )
            case Forget():
                found = [each for each in self._kept if message.where in ("", each.given.where)]
                self._close(found)
                send(connection, len(found))
            case Stop():
                self._stopping = True
                send(connection, len(self._kept))
        close_all(descriptors)

    def _hold(self, given: Give, descriptors: list[int]) -> None:
        if not descriptors:
            return
        self._kept.append(Kept(given, descriptors, self._clock(), self._slept()))
        same = [each for each in self._kept if each.given.key == given.key]
        self._close(same[:-MOST_OF_SERVER])
        self._close(self._kept[:-MOST])

    def _lend(self, connection: socket.socket, key: str) -> None:
        """Lend the connection that was used last, because its congestion window is the largest."""
        for kept in [each for each in reversed(self._kept) if each.given.key == key]:
            if self._slept() - kept.slept < ASLEEP and not _says_anything(kept.descriptors):
                try:
                    send(connection, Lent(kept.given.last_id, kept.given.patience), kept.descriptors)
                finally:  # Even after an error: it may not be lent twice.
                    self._close([kept])
                return
            self._close([kept])
        send(connection, None)

    def _close(self, gone: list[Kept]) -> None:
        """Close connections in this process. A lent connection stays open in the process that borrowed it."""
        for kept in list(gone):
            self._kept.remove(kept)
            close_all(kept.descriptors)


def _says_anything(descriptors: list[int]) -> bool:
    poll = select.poll()
    for number in descriptors:
        poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
