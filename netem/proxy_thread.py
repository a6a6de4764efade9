"""A thread with an asyncio loop, and calls to it from other threads. A failure of the thread is raised by the next
call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

THREAD = "netem proxy"
"""The name of a proxy's thread."""

STARTING = 30.0
"""Timeout in seconds for the thread to listen, and for each call to it."""

_T = TypeVar("_T")


class ProxyError(Exception):
    """The proxy's own thread failed or does not answer, so the counts are invalid. Any call may raise it."""


class ProxyThread:
    """A thread that runs `serve` in an asyncio loop until `stop` or a failure, and then calls `gone`.

    `serve` must set `listening` when it listens, then wait for the event that is its argument, and clean up.
    """

    def __init__(self, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], gone: Callable[[], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping: asyncio.Event | None = None
        """The event that ends `serve`. It must be set on the thread of `serve`."""
        self.thread: threading.Thread | None = None
        self.listening = threading.Event()
        self._serve = serve
        self._gone = gone
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start the thread and wait until it listens.

        Raises:
            OSError: the proxy cannot listen on that address.
        """
        self.thread = threading.Thread(target=self.run, name=THREAD, daemon=True)
        self.thread.start()
        if not self.listening.wait(STARTING):
            raise ProxyError(f"the proxy does not listen after {STARTING:g} s")
        if isinstance(self._failure, OSError):
            self.thread.join()
            raise self._failure
        self.check()

    def stop(self) -> None:
        """End the thread. Stopping twice is harmless."""
        if self.thread is None:
            return
        if not self.listening.wait(STARTING):  # it cannot be ended before, if `start` was interrupted
            return
        if self.loop is not None and self.stopping is not None and self.thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop closed between the two lines
                self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join()

    def check(self) -> None:
        """Raise `ProxyError` if the thread failed."""
        if self._failure is not None:
            raise ProxyError(f"the proxy's thread failed: {self._failure!r}") from self._failure

    def ask(self, question: Callable[[], _T]) -> _T:
        """Call a function on the thread and return its result. If the thread does not run, call the function here."""
        self.check()
        loop, thread = self.loop, self.thread
        if loop is None or thread is None or not thread.is_alive() or thread is threading.current_thread():
            return question()

        answered: Future[_T] = Future()

        def answer() -> None:
            if not answered.set_running_or_notify_cancel():  # the caller does not wait any more
                return
            try:
                answered.set_result(question())
            except BaseException as error:  # raised to the caller
                answered.set_exception(error)

        try:
            loop.call_soon_threadsafe(answer)  # no coroutine: an interrupted caller would leave one that never ran
        except RuntimeError:  # the loop was closed in between
            return question()
        return _answer(answered)

    def ask_running(self, question: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the thread and return its result."""
        self.check()
        if self.loop is None or self.loop.is_closed():
            raise ProxyError("the proxy was not started, or is closed")
        return _answer(asyncio.run_coroutine_threadsafe(question(), self.loop))

    def failed(self, error: BaseException) -> None:
        """Store a failure for the next call to raise, and end the thread. Call this on the thread itself."""
        if self._failure is None:
            self._failure = error
        if self.stopping is not None:
            self.stopping.set()

    def run(self) -> None:
        """Run the loop. This is the function of the thread."""
        try:
            asyncio.run(self._main())
        except BaseException as error:  # raised by the next call
            self._failure = error
        finally:
            self._gone()
            self.listening.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        self.loop.set_exception_handler(self._complained)
        await self._serve(self.stopping)

    def _complained(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failed(error if isinstance(error, BaseException) else RuntimeError(context["message"]))


def _answer(future: Future[_T]) -> _T:
    """Return the thread's answer."""
    try:
        return future.result(STARTING)
    except TimeoutError as error:
        if future.done():  # the called function raised it
            raise
        future.cancel()
        raise ProxyError(f"the proxy does not answer after {STARTING:g} s") from error
