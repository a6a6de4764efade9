"""`S3Transport`: a prefix of a bucket of an S3 store, through the library obstore (the extra `s3`).

Endpoint, region and credentials come from the environment, as obstore reads it: `AWS_ENDPOINT_URL`, with
`AWS_ALLOW_HTTP=true` for one without TLS, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the role of
a container or a machine. `AWS_TIMEOUT` is the timeout of one call, by default `30 seconds`. Profiles of `~/.aws` are
not read: `aws configure export-credentials --format env` prints them as variables. The credentials must allow
`s3:ListBucket`: without it, a store answers "denied" for a missing file.

S3 has no folders and no rename, so some promises of `transports.base` are kept in another way:

- *A file in a folder named `incoming` is held by this process*, in memory or in a temporary file without a name. No
  other process sees it. A rename to another folder uploads it, and so does `publish`. It is lost with the process.
- *Any other new file is uploaded at its first sync*, or when it is closed. `FileExists` is raised only then.
- *A folder exists if a file exists below it*, or if this process has made it. Making one needs no call to the store. So
  making a folder excludes no other client, and no file needs one. A creation does not rely on folders: it publishes
  record 1 and `format`, and a concurrent creation above or below finds the first of them (`store/creation.py`).
- *A change that was answered is durable*, so a sync does nothing.
- *Deleting a missing file succeeds*: S3 does not say whether the file existed.
- *A path below a file*, or a listing of a file, raises `NoSuchFile`, not `NotADirectory`.
- *A file of the bucket is renamed by a copy and a deletion.* Only `recover` does that.

`publish` is one conditional PUT (`If-None-Match: *`), which the library does not retry: a retry would be refused
because of the first PUT, and the refusal would look like that of another client. Other calls are retried for `RETRIES`
seconds if the store fails.

The library's threads do not survive a fork. So a process that was forked after a bucket was used gets an error, because
it would hang for ever.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore

from transports import paths
from transports.base import Capability, EntryKind, ReadFile, Stat, Step, Transport, WriteFile
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotSupported,
    TransportError,
    TransportFailed,
)
from transports.s3_bucket import Bucket
from transports.s3_files import FOLDER, BucketFile, NewFile, SpooledFile, stat_of
from transports.steps import (
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    Publish,
    Put,
    Query,
    ReadRanges,
    Rename,
    SyncDirectory,
)

INCOMING = "incoming"
"""The name of each folder whose files this process holds instead of uploading them."""
PART = 5 << 20
"""Bytes of one part of an upload, the smallest size that S3 accepts for all but the last part."""
PARTS = 4
"""The number of parts of one upload that are sent concurrently."""
MOST_PARTS = 10_000
"""The most parts that S3 accepts in one upload."""
NEAR = 128 << 10
"""The largest gap in bytes between ranges that one call reads. At 100 Mbit/s it takes 10 ms, less than another call."""
MANY = 4
"""From this number on, the records of one folder are all read at once. If there are fewer, the last is read after the
others, because one of those is usually missing, and the last would then have to be read again."""
LOOKS = 3
"""From this number of stats in one folder on, a listing is cheaper. The stat of a missing file takes two calls."""


class S3Transport(Transport):
    """A prefix of a bucket. The head of the module lists the differences from a folder.

    Steps are performed with as few waits as their order allows. A change is made when all earlier steps were answered,
    with one exception: successive uploads are made together with the reads after them that name other files.
    Reads between two changes are made together. A read after a listing waits for it, so that listed files are found.

    A *record* is a published file whose name is a number. Records are deleted in rising order and requested from the
    newest down, so that each is read after those above it (design 0032). If they are few, the last is read after the
    others. A record that exists, and was not read after the missing one above it, is read once more.
    """

    capabilities = Capability.ROUND_TRIPS | Capability.OBJECTS

    def __init__(self, bucket: str, root: str = "", *, _shared: Bucket | None = None, _prefix: str = "") -> None:
        """`root`: the prefix in the bucket, without a slash at its end."""
        self._bucket = _shared or Bucket(bucket)
        self._root = paths.check(root)
        self._prefix = _prefix

    @property
    def calls(self) -> Counter[str]:
        """The number of calls to the store so far, by method, of this transport and all that share its `Bucket`."""
        return self._bucket.calls

    def _at(self, path: str) -> tuple[str, str]:
        """Return the path in the form for errors, and the key in the bucket."""
        full = paths.join(self._prefix, path)
        return full, paths.join(self._root, full)

    def child(self, path: str) -> S3Transport:
        prefix = paths.join(self._prefix, path)
        return S3Transport(self._bucket.name, self._root, _shared=self._bucket, _prefix=prefix)

    def describe(self, path: str = "") -> str:
        return f"s3://{self._bucket.name}/{self._at(path)[1]}".rstrip("/")

    # -- reading

    def get(self, path: str) -> bytes:
        full, key = self._at(path)
        spooled = self._bucket.spool.get(key)
        if spooled is not None:
            return spooled.content()
        store = self._bucket.store()
        return self._bucket.call("GET", full, lambda: bytes(obstore.get(store, key or "/").bytes()))

    def get_published(self, path: str) -> bytes:
        return self.get(path)

    def open_read(self, path: str) -> ReadFile:
        full, key = self._at(path)
        spooled = self._bucket.spool.get(key)
        if spooled is None:
            size = self._head(path).size
            return BucketFile(lambda: size, partial(self._ranges, path), full)
        return BucketFile(lambda: spooled.size, lambda ranges: [spooled.read_at(*each) for each in ranges], full)

    def open_published(self, path: str) -> ReadFile:
        return self.open_read(path)

    def _ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return ranges of a file of the bucket. Ranges that are close to each other are read by one call."""
        full, key = self._at(path)
        store, pieces = self._bucket.store(), list[tuple[int, int]]()
        for offset, size in sorted(each for each in ranges if each[1]):
            if pieces and offset <= pieces[-1][1] + NEAR:
                pieces[-1] = pieces[-1][0], max(pieces[-1][1], offset + size)
            else:
                pieces.append((offset, offset + size))

        def read(piece: tuple[int, int]) -> bytes:
            got = partial(obstore.get, store, key, options={"range": piece})
            try:
                return self._bucket.call("GET", full, lambda: bytes(got().bytes()))
            except TransportFailed as error:
                if error.reason.startswith("InvalidRange:"):  # The range begins after the end of the file.
                    return b""
                raise

        found = dict(zip(pieces, self._bucket.all_of([partial(read, each) for each in pieces], "ranges"), strict=True))

        def cut(offset: int, size: int) -> bytes:
            if not size:
                return b""
            piece = pieces[bisect.bisect(pieces, (offset, sys.maxsize)) - 1]
            return found[piece][offset - piece[0] :][:size]

        return [cut(*each) for each in ranges]

    def _head(self, path: str) -> Stat:
        full, key = self._at(path)
        store = self._bucket.store()
        return stat_of(self._bucket.call("HEAD", full, lambda: obstore.head(store, key or "/")))

    def stat(self, path: str) -> Stat:
        key = self._at(path)[1]
        spooled = self._bucket.spool.get(key)
        if spooled is not None:
            return Stat(EntryKind.FILE, spooled.size, spooled.made + self._clock(path))
        if self._is_kept(key):
            return FOLDER
        try:
            return self._head(path)
        except NoSuchFile:
            if self._listing(path):
                return FOLDER
            raise

    def _clock(self, path: str) -> float:
        """Return the store's clock minus `time.monotonic` in seconds. To measure it, write and delete `path` once."""
        bucket, (full, key) = self._bucket, self._at(path)
        if bucket.ahead is None:
            store = bucket.store()
            bucket.call("PUT", full, lambda: obstore.put(store, key, b""))
            bucket.ahead = self._head(path).modified - time.monotonic()
            bucket.call("DELETE", full, lambda: obstore.delete(store, key))
        return bucket.ahead

    def _is_kept(self, key: str) -> bool:
        """Tell whether the key names a folder that exists even if it is empty."""
        return key == self._root or key in self._bucket.folders or paths.split(key)[1] == INCOMING

    def _listing(self, path: str) -> dict[str, Stat]:
        """Return the stat of each file and folder in a folder of the bucket, by name."""
        full, key = self._at(path)
        store = self._bucket.store()
        found = self._bucket.call("LIST", full, lambda: obstore.list_with_delimiter(store, key or None))
        files = {each["path"]: stat_of(each) for each in found["objects"]}
        return {
            paths.split(each)[1]: stat
            for each, stat in {**dict.fromkeys(found["common_prefixes"], FOLDER), **files}.items()
        }

    def list_directory(self, path: str) -> list[str]:
        full, key = self._at(path)
        own = {name for folder, name in map(paths.split, [*self._bucket.folders, *self._bucket.spool]) if folder == key}
        names = {*self._listing(path), *own} - {""}
        if not names and not self._is_kept(key):
            raise NoSuchFile(full)
        return sorted(names)

    # -- changing

    def create(self, path: str) -> WriteFile:
        full, key = self._at(path)
        spooled = SpooledFile()
        if not self._is_own(key):
            return NewFile(spooled, full, partial(self._upload_new, path))
        if self._bucket.spool.setdefault(key, spooled) is not spooled:
            raise FileExists(full)
        return NewFile(spooled, full, None)

    @staticmethod
    def _is_own(key: str) -> bool:
        """Tell whether this process holds the file with this key, because its folder is `incoming`."""
        return paths.split(paths.split(key)[0])[1] == INCOMING

    def _upload_new(self, path: str, spooled: SpooledFile) -> None:
        full, key = self._at(path)
        store, content = self._bucket.store(), spooled.content()
        try:
            self._bucket.call("PUT", full, lambda: obstore.put(store, key, content, mode="create"))
        except FileExists:
            if self.get(path) != content:  # If it is equal, most likely a retry of this call found its own file.
                raise

    def publish(self, source: str, target: str) -> None:
        self._publish(source, target)

    def _publish(self, source: str, target: str) -> bytes:
        """Publish a file and return its content."""
        full, key = self._at(target)
        content, store = self.get(source), self._bucket.store(once=True)
        self._bucket.call("PUT", full, lambda: obstore.put(store, key, content, mode="create"))
        with contextlib.suppress(TransportError):  # The file is published even if its old name stays.
            self.delete(source)
        return content

    def publish_as_folder(self, source: str, target: str) -> None:
        """Publish as `publish` does, because S3 has only one form."""
        self._publish(source, target)

    def rename(self, source: str, target: str) -> None:
        bucket, (full, old), new = self._bucket, self._at(source), self._at(target)[1]
        store, spooled = bucket.store(), bucket.spool.get(old)
        if old == new:
            return
        if spooled is None:
            bucket.call("COPY", full, lambda: obstore.copy(store, old, new))
            self.delete(source)
        elif self._is_own(new):
            bucket.spool[new] = bucket.spool.pop(old)
        else:
            self._send(source, target)
            bucket.spool.pop(old, None)

    def _send(self, source: str, target: str) -> None:
        """Upload a file of this process to `target`."""
        bucket, spooled, (there, new) = self._bucket, self._bucket.spool[self._at(source)[1]], self._at(target)
        part = max(PART, spooled.size // MOST_PARTS + 1)
        put = partial(obstore.put, bucket.store(), new, chunk_size=part, max_concurrency=PARTS)
        bucket.call("PUT", there, lambda: spooled.send(put))

    def delete(self, path: str) -> None:
        full, key = self._at(path)
        if self._bucket.spool.pop(key, None) is None:
            store = self._bucket.store()
            self._bucket.call("DELETE", full, lambda: obstore.delete(store, key))

    def withdraw(self, path: str, aside: str) -> None:
        paths.check(aside)
        self.delete(path)
        self._bucket.folders.discard(self._at(path)[1])

    def make_directory(self, path: str) -> None:
        full, key = self._at(path)
        with self._bucket.guard:
            if key in self._bucket.folders:
                raise FileExists(full)
            self._bucket.folders.add(key)

    def remove_directory(self, path: str) -> None:
        full, key = self._at(path)
        if self.list_directory(path):
            raise DirectoryNotEmpty(full)
        self._bucket.folders.discard(key)

    def sync_directory(self, path: str) -> None:
        self._at(path)

    # -- many at once

    def perform(self, steps: Sequence[Step]) -> None:
        for path in itertools.chain.from_iterable(step.paths for step in steps):
            self._at(path)
        uploads: list[Put | Rename] = []
        reads: list[Query[Any]] = []
        published: dict[str, bytes] = {}
        for step in steps:
            if isinstance(step, GetPublished) and step.path in published:
                step.settle(published[step.path])
            elif isinstance(step, Query):
                reads.append(step)
            elif not isinstance(step, SyncDirectory):
                is_upload = self._is_upload(step)
                if reads or not is_upload or any(step.paths[-1] in upload.paths for upload in uploads):
                    self._read(reads, uploads)
                    uploads, reads = [], []
                for path in step.paths:
                    published.pop(path, None)
                if isinstance(step, Put | Rename) and is_upload:
                    uploads.append(step)
                elif isinstance(step, Publish):
                    published[step.target] = self._publish(step.path, step.target)
                else:
                    step.do(self)
        self._read(reads, uploads)

    def _is_upload(self, step: Step) -> bool:
        """Tell whether a step uploads a file of this process or new content to the bucket."""
        if isinstance(step, Rename) and self._at(step.path)[1] not in self._bucket.spool:
            return False
        return isinstance(step, Put | Rename) and not self._is_own(self._at(step.paths[-1])[1])

    def _upload_and_ask(self, uploads: Sequence[Put | Rename], asked: Sequence[Query[Any]]) -> dict[Query[Any], object]:
        """Upload files and perform queries at the same time. Return the result or error of each query.

        Raises:
            TransportError: an upload failed.
        """
        answers: dict[Query[Any], object] = {}

        def ask() -> None:
            answers.update(self._ask(asked))

        together: list[Callable[[], TransportError | None]] = [partial(self._upload, step) for step in uploads]
        *failures, _ = self._bucket.all_of([*together, ask], "uploads")
        self._settle(uploads, failures)
        return answers

    def _upload(self, step: Put | Rename) -> TransportError | None:
        try:
            if isinstance(step, Put):
                step.do(self)
            else:
                self._send(step.path, step.target)
        except TransportError as error:
            return error
        return None

    def _settle(self, uploads: Sequence[Put | Rename], failures: Sequence[TransportError | None]) -> None:
        """Forget the uploaded files. If an upload failed, delete the later ones from the bucket and raise its error."""
        error: TransportError | None = None
        for step, failure in zip(uploads, failures, strict=True):
            error = error or failure
            if error is None and isinstance(step, Rename):
                self._bucket.spool.pop(self._at(step.path)[1], None)
            elif error is not None and failure is None:
                with contextlib.suppress(TransportError):
                    self.delete(step.paths[-1])
        if error is not None:
            raise error

    def _read(self, steps: Sequence[Query[Any]], uploads: Sequence[Put | Rename] = ()) -> None:
        """Perform uploads and the queries that follow them."""
        logs: dict[str, list[Query[Any]]] = {}
        for step in steps:
            folder, name = paths.split(step.path)
            if isinstance(step, GetPublished) and name.isdecimal():
                logs.setdefault(folder, []).append(step)
        last = {records[-1] for records in logs.values() if 1 < len(records) < MANY}
        brought = {each for step in uploads for each in (step.paths[-1], paths.split(step.paths[-1])[0])}
        flights: list[list[Query[Any]]] = [[], [], []]
        listed = False
        for step in steps:
            is_listing = isinstance(step, ListDirectory)
            waits = step.path in brought or (listed and not is_listing)
            flights[waits + (step in last)].append(step)
            listed = listed or is_listing
        answers: dict[Query[Any], object] = {}
        when: dict[Query[Any], int] = {}
        again: list[Query[Any]] = []
        for number in itertools.count():
            asked = [*(flights[number] if number < len(flights) else ()), *again]
            answers.update(self._ask(asked) if number else self._upload_and_ask(uploads, asked))
            if any(isinstance(answer, TransportError) for answer in answers.values()):
                break
            when.update(dict.fromkeys(asked, number))
            neighbours = (each for records in logs.values() for each in itertools.pairwise(records))
            again = [
                below
                for above, below in neighbours
                if above in when and below in when and answers[above] is None and answers[below] is not None
                and when[below] <= when[above]
            ]  # fmt: skip
            if not again and not any(flights[number + 1 :]):
                break
        for step in steps:
            if step in answers:
                answer = answers[step]
                if isinstance(answer, TransportError):
                    raise answer
                step.settle(answer)

    def _ask(self, steps: Sequence[Query[Any]]) -> dict[Query[Any], object]:
        """Perform queries concurrently. Return the result or error of each. Stats in a folder become one listing."""
        looks: dict[str, list[Query[Any]]] = {}
        for step in steps:
            if isinstance(step, GetStat) and step.path:
                looks.setdefault(paths.split(step.path)[0], []).append(step)
        listed = {folder: group for folder, group in looks.items() if len(group) >= LOOKS}
        grouped = {step for group in listed.values() for step in group}
        single = [step for step in steps if step not in grouped]
        asks = [
            *(partial(self._look_at, folder, group) for folder, group in listed.items()),
            *(partial(self._answers, [step]) for step in single),
        ]
        return dict(itertools.chain.from_iterable(self._bucket.all_of(asks, "steps")))

    def _look_at(self, folder: str, steps: Sequence[Query[Any]]) -> list[tuple[Query[Any], object]]:
        """Answer stat steps for files in one folder by one listing."""
        try:
            found = self._listing(folder)
        except TransportError as error:
            return [(step, error) for step in steps]
        there = {step: found.get(paths.split(step.path)[1]) for step in steps}
        keys = {step: self._at(step.path)[1] for step in steps}
        own = [step for step in steps if keys[step] in self._bucket.spool or self._is_kept(keys[step])]
        return list({**there, **dict(self._answers(own))}.items())

    def _answers(self, steps: Iterable[Query[Any]]) -> list[tuple[Query[Any], object]]:
        answers: list[tuple[Query[Any], object]] = []
        for step in steps:
            try:
                answers.append((step, self._answer(step)))
            except TransportError as error:
                answers.append((step, error))
        return answers

    def _answer(self, step: Query[Any]) -> object:
        try:
            match step:
                case Get() | GetPublished():
                    return self.get(step.path)
                case GetStat():
                    return self.stat(step.path)
                case ListDirectory():
                    return self.list_directory(step.path)
        except NoSuchFile:
            return None
        if not isinstance(step, ReadRanges):
            raise NotSupported(type(step).__name__)
        if self._at(step.path)[1] in self._bucket.spool:
            return self.open_read(step.path).read_ranges(step.ranges)
        return self._ranges(step.path, step.ranges)


def from_url(url: str) -> S3Transport:
    """Return the transport of a URL such as `s3://bucket/prefix`. The store is not contacted yet.

    Raises:
        ValueError: the URL is invalid.
    """
    parts = urlsplit(url)
    prefix = unquote(parts.path)
    if "@" in parts.netloc:
        raise ValueError("an S3 URL has no credentials: they come from the environment")
    if parts.scheme != "s3" or not re.fullmatch("[a-z0-9][a-z0-9.-]+", parts.netloc) or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not a place in an S3 store: s3://BUCKET[/PREFIX]")
    if "\ufffd" in prefix:
        raise ValueError(f"{url!r} has bytes that are no UTF-8")
    return S3Transport(parts.netloc, prefix.strip("/"))
