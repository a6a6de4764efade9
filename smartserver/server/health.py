"""`Health`: reports on `/healthz` that a server is alive, and on `/readyz` whether it is ready for requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus

from smartserver.server.connections import Clock
from smartserver.server.executor import Executor, Lane
from smartserver.server.pages import TEXT, Answer, Page
from smartserver.store.format import CLUSTER
from smartserver.store.record import record_path
from transports.base import Transport
from transports.errors import CodedError, NoSuchFile, TransportFailed
from transports.steps import Get, GetPublished, GetStat

log = logging.getLogger("smartserver")

PATIENCE = 2.0
"""Seconds that the store and the database have to answer."""

FRESH = 2.0
"""Seconds for which a successful read of the store is valid. Within this time, the pages do not read the store
again."""


def look_at(root: Transport, mark: bytes | None) -> None:
    """Test that the store answers, and the database of its logs, if it has one. `mark`: the result of
    `store.cluster.mark_of` when the server began.

    Raises:
        CodedError: a read failed, the served folder is missing, or the logs are elsewhere now.
    """
    folder, file = GetStat(""), Get(CLUSTER)
    root.perform([folder, file, GetPublished(record_path(1))])
    if folder.result is None:
        raise NoSuchFile(root.describe())
    if file.result != mark:
        raise TransportFailed(CLUSTER, "the file has changed since this server started: restart the server")


class Health:
    """The health of a server. The server is ready while it is not stopping and its store answers."""

    def __init__(self, look: Callable[[], None], executor: Executor, clock: Clock) -> None:
        """`look`: a function that reads the store. It may raise CodedError, and may take any time."""
        self.is_stopping = False
        self._look = look
        self._executor = executor
        self._clock = clock
        self._answered: float | None = None
        """The time of the store's last answer; None before the first."""
        self._is_looking = False
        self._waiting: list[Callable[[str], None]] = []
        """The callers that wait for the result of the current read of the store."""
        self._is_ready = True
        """True if `/readyz` last answered that the server is ready."""

    @property
    def pages(self) -> dict[bytes, Page]:
        """The pages by their paths."""
        return {b"/healthz": self._alive, b"/readyz": self._ready}

    def _alive(self, _: str, answer: Callable[[Answer], None]) -> None:
        answer((HTTPStatus.OK, TEXT, b"alive\n"))

    def _ready(self, _: str, answer: Callable[[Answer], None]) -> None:
        def tell(why: str) -> None:
            why = "the server is stopping" if self.is_stopping else why
            if bool(why) is self._is_ready:
                self._is_ready = not why
                log.warning("not ready: %s", why) if why else log.warning("ready again")
            status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
            answer((status, TEXT, f"{why or 'ready'}\n".encode()))

        now = self._clock.seconds()
        if self.is_stopping or (self._answered is not None and now - self._answered <= FRESH):
            tell("")
        else:
            self._ask(tell)

    def _ask(self, tell: Callable[[str], None]) -> None:
        def late() -> None:
            self._waiting.remove(told)
            tell(f"the store did not answer within {PATIENCE:.0f} s")

        def told(why: str) -> None:
            timer.cancel()
            tell(why)

        def done(why: str) -> None:
            self._is_looking = False
            self._answered = self._answered if why else self._clock.seconds()
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each(why)

        self._waiting.append(told)
        timer = self._clock.callLater(PATIENCE, late)
        if not self._is_looking:
            self._is_looking = True
            self._executor.run(self._why_not, done, Lane.HEALTH)

    def _why_not(self) -> str:
        """Return the reason why the store cannot be used, on one line; empty if it can be used."""
        try:
            self._look()
        except CodedError as error:
            return " ".join(str(error).split())
        except Exception:  # Nobody sees errors of this thread, and `done` must be called.
            log.exception("the look at the store failed")
            return "the server failed to look at the store"
        return ""
