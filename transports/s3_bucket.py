"""`Bucket`: calls to one S3 bucket, their errors, and the files that this process holds for it."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from transports.errors import FileExists, NoSuchFile, PermissionDenied, TransportError, TransportFailed
from transports.s3_files import SpooledFile

AT_ONCE = 32
"""The most concurrent calls of one pool: as many as records are read at once (`AHEAD` of `store.log_view`)."""
RETRIES = 30
"""Seconds for which the library retries a call if the store fails, ten times at most; as `WAIT` of `store.log`."""

ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")

Result = TypeVar("Result")

_user: int | None = None
"""The id of the process that first used the library; None before."""


def _failure(path: str, error: Exception) -> TransportError:
    """Return the transport's error for an error of the library. The library's text may contain keys, so only a part of
    it is shown."""
    text = str(error)
    code, message = (
        found[1] if (found := re.search(f"<{name}>([^<]*)</{name}>", text)) else "" for name in ("Code", "Message")
    )
    if code == "NoSuchBucket":
        return TransportFailed(path, "there is no such bucket")
    if re.search("/latest/(api/token|meta-data)", text):
        return TransportFailed(path, "no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is")
    if code == "RequestTimeTooSkewed":
        return TransportFailed(path, "the clock of this machine differs too much from that of the S3 store: set it")
    is_stranger = not code and re.match(r".*status code: 404 [^:]*: *\S", text)  # A server that is no S3 store.
    if isinstance(error, FileNotFoundError) and code in ("", "NoSuchKey") and not is_stranger:
        return NoSuchFile(path)
    if isinstance(error, AlreadyExistsError):
        return FileExists(path)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or "status code: 403" in text:
        return PermissionDenied(path, "" if code in ("", "AccessDenied") else f"the S3 store refuses the keys ({code})")
    if code:
        return TransportFailed(path, f"{code}: {message}")
    # Do not show a client the address of the store, or the text of a server that is no S3 store.
    said = re.sub(r"(status code: \d+ [^:]*):.*", r"\1", text.partition("\n")[0])
    return TransportFailed(path, re.sub(r"https?://\S+", "the store", said))


def _is_url(value: str) -> bool:
    """Tell whether the library accepts a value as the URL of a store."""
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class Bucket:
    """The state that an `S3Transport` shares with its children. Several threads may use it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: Counter[str] = Counter()
        """The number of calls to the store so far, by method."""
        self.spool: dict[str, SpooledFile] = {}
        self.folders: set[str] = set()
        self.ahead: float | None = None
        """The store's clock minus `time.monotonic` in seconds; None until the difference is measured."""
        self.guard = threading.RLock()
        self._stores: dict[bool, S3Store] = {}
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def store(self, *, once: bool = False) -> S3Store:
        """Return the library's store object, which makes the calls. `once`: it makes no retries.

        Raises:
            TransportFailed: another process, from which this one was forked, has used the library.
        """
        global _user
        with self.guard:
            _user = _user or os.getpid()
            if _user != os.getpid():
                raise TransportFailed("", f"s3://{self.name} was used before this process was forked")
            if once not in self._stores:
                self._stores[once] = self._made(0 if once else 10)
            return self._stores[once]

    def _made(self, retries: int) -> S3Store:
        for name in ENDPOINTS:
            if name in os.environ and not _is_url(os.environ[name]):  # The library would panic.
                raise TransportFailed("", f"{name} is not a URL: expected https://host or http://host:port")
        try:
            return S3Store(
                self.name,
                disable_bulk_delete=True,
                retry_config={"retry_timeout": timedelta(seconds=RETRIES), "max_retries": retries},
            )
        except BaseError as error:
            why = str(error).partition("\n")[0]
            raise TransportFailed("", f"a variable AWS_... has a wrong value: {why}") from None

    def call(self, method: str, path: str, ask: Callable[[], Result]) -> Result:
        """Call `ask`, which makes one call of `method`, and return its result. The call is counted. Errors of the
        library become errors of a transport for `path`."""
        with self.guard:
            self.calls[method] += 1
        try:
            return ask()
        except (BaseError, FileNotFoundError, ValueError) as error:
            raise _failure(path, error) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            why = f"the S3 library failed ({error}): are the keys right?"
            raise TransportFailed(path, why) from None

    def all_of(self, asks: Sequence[Callable[[], Result]], pool: str) -> list[Result]:
        """Run `asks` concurrently and return their results. `pool`: the name of the threads to use. A function that
        waits for other functions must use a different pool from theirs."""
        if len(asks) < 2:
            return [ask() for ask in asks]
        with self.guard:
            if pool not in self._pools:
                self._pools[pool] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"s3 {pool}")
            threads = self._pools[pool]
        return [each.result() for each in [threads.submit(ask) for ask in asks]]
