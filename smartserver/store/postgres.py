"""`Database`: the tables of PostgreSQL in which several servers keep the logs of their repositories (`postgres_log`),
and the files that they share.

A record is published by one INSERT, which needs the row of the record that it follows, with its hash, and locks that
row: to publish and to look back is one statement. Records that are asked for together are read in one statement, so all
of them are of one moment.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import psycopg

from smartserver.errors import Unsupported
from smartserver.store.format import LOG
from smartserver.store.record import decode_record, hash_of, record_path
from transports import paths
from transports.base import EntryKind, Stat
from transports.errors import PermissionDenied, TransportFailed

log = logging.getLogger("smartserver")

SCHEMA = 1
"""Version of the tables. A server refuses any other."""
TABLES = """
CREATE TABLE smartserver_cluster (schema integer NOT NULL, store text NOT NULL);
CREATE TABLE smartserver_record (
    repository text NOT NULL,
    number bigint NOT NULL,
    hash bytea NOT NULL,
    content bytea NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (repository, number)
);
ALTER TABLE smartserver_record ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE smartserver_file (name text PRIMARY KEY, version bigint NOT NULL, content bytea NOT NULL);
"""
"""A record does not shrink by compression: hashes are most of it. The files are those that all servers share."""

PATIENCE = 4
"""Seconds after which a call fails because the database did not answer, with the time to connect to it."""
CONNECT_TIMEOUT = 2
"""Seconds for each address of the database: the least that libpq knows."""

_READ = "SELECT number, content FROM smartserver_record WHERE repository = %s AND number = ANY(%s)"
_NUMBERS = "SELECT number FROM smartserver_record WHERE repository = %s ORDER BY number"
_DELETE = "DELETE FROM smartserver_record WHERE repository = %s AND number = %s RETURNING 1"
_AGE = "SELECT octet_length(content), extract(epoch FROM made)::float8 FROM smartserver_record {}"
_AGE = _AGE.format("WHERE repository = %s AND number = %s")
_FILE = "SELECT content FROM smartserver_file WHERE name = %s"
_REPLACE = """
INSERT INTO smartserver_file VALUES (%s, 1, %s)
ON CONFLICT (name) DO UPDATE SET version = smartserver_file.version + 1, content = excluded.content
"""
_USAGE = """
SELECT count(DISTINCT repository), count(*), pg_total_relation_size('smartserver_record') FROM smartserver_record
"""
_FIRST = """
INSERT INTO smartserver_record (repository, number, hash, content) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING
RETURNING 1
"""
_NEXT = """
WITH parent AS (
    SELECT content FROM smartserver_record WHERE repository = %s AND number = %s AND hash = %s FOR SHARE
)
INSERT INTO smartserver_record (repository, number, hash, content)
SELECT %s, %s, %s, %s FROM parent ON CONFLICT DO NOTHING
RETURNING (SELECT content FROM parent)
"""


def secrets_in(address: str) -> list[str]:
    """The options of a database's address that must not be written down: secrets, and the file that has them.

    Raises:
        ValueError: it is no address.
    """
    try:
        options = psycopg.pq.Conninfo.parse(address.encode())
    except psycopg.Error as error:
        raise ValueError(str(error).strip()) from None
    return [o.keyword.decode() for o in options if o.val and (o.dispchar == b"*" or o.keyword == b"passfile")]


@contextmanager
def create_tables(address: str, store: str) -> Iterator[None]:
    """Make the tables for the logs of a store, whose identity is `store`: none if the block raises."""
    with _translated(""), _connected(address) as connection, connection.transaction():
        if connection.execute("SELECT to_regclass('smartserver_record')").fetchone() != (None,):
            raise TransportFailed("", f"{address} has the tables of a store already: name an empty database")
        connection.execute(TABLES)
        connection.execute("INSERT INTO smartserver_cluster VALUES (%s, %s)", (SCHEMA, store))
        yield
        connection.deadline = time.monotonic() + PATIENCE


class _Connection(psycopg.Connection[Any]):
    """A connection whose waits end at `deadline`: no timeout of kernel or server ends that of a frozen server."""

    deadline = math.inf
    """By `time.monotonic`."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._until_deadline(gen), *args, **kwargs)

    def _until_deadline(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same waits. psycopg resumes them ten times a second, also where nothing arrived."""
        try:
            state = next(gen)
            while True:
                ready = yield state
                if time.monotonic() >= self.deadline:
                    raise _no_answer()
                state = gen.send(ready)
        except StopIteration as done:
            return done.value


def _connected(address: str) -> _Connection:
    """A new connection, whose deadline is that of the first statement."""
    connection = _Connection.connect(
        address,
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT,
        keepalives_idle=30,
        keepalives_interval=PATIENCE,
        keepalives_count=1,
        tcp_user_timeout=PATIENCE * 1000,
        options=f"-c statement_timeout={PATIENCE * 1000} -c synchronous_commit=on",
        application_name="smartserver",
    )
    connection.deadline = time.monotonic() + PATIENCE
    return connection


def _path(repository: str, number: int) -> str:
    """That of a record, from the outermost transport, for errors."""
    return paths.join(repository, record_path(number))


def _no_answer() -> psycopg.OperationalError:
    return psycopg.OperationalError(f"it did not answer within {PATIENCE} s")


class Database:
    """The records of all repositories of one cluster; usable from several threads. A process that was forked opens its
    own connections. Every method raises TransportFailed if the database is away."""

    def __init__(self, address: str, store: str) -> None:
        """`address`: a connection string of libpq. `store`: the identity of the store whose logs these are."""
        self.address, self.store = address, store
        self._guard = threading.Lock()
        self._process = 0
        self._idle: list[_Connection] = []

    def read(self, repository: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """The content of each of these records that is there, all of one moment."""
        return dict(self._ask(_path(repository, max(numbers)), _READ, repository, list(numbers)))

    def numbers(self, repository: str) -> list[int]:
        """The numbers of the records that are there, ascending."""
        return [number for (number,) in self._ask(paths.join(repository, LOG), _NUMBERS, repository)]

    def stat(self, repository: str, number: int) -> Stat | None:
        """A record's size, and when it was published."""
        for size, made in self._ask(_path(repository, number), _AGE, repository, number):
            return Stat(EntryKind.FILE, size, made)
        return None

    def publish(self, repository: str, content: bytes, path: str) -> dict[int, bytes]:
        """Add a record; its content and that of the one before it, by number. Empty if it does not follow, or comes too
        late."""
        record = decode_record(content, path)
        row = repository, record.number, hash_of(content), content
        # That of a recovery follows what may be gone.
        if record.number == 1 or any(entry.begins for entry in record.entries):
            return {record.number: content} if self._change(path, _FIRST, *row) else {}
        added = self._change(path, _NEXT, repository, record.number - 1, record.parent, *row)
        return {record.number: content, record.number - 1: added[0][0]} if added else {}

    def delete(self, repository: str, number: int) -> bool:
        """Delete a record, durably; False where it is not there."""
        return bool(self._change(_path(repository, number), _DELETE, repository, number))

    def versions(self) -> dict[str, int]:
        """The version of each file that servers share, by its name."""
        return dict(self._ask("", "SELECT name, version FROM smartserver_file"))

    def file(self, name: str) -> bytes | None:
        """The content of such a file; None where there is none."""
        return next((content for (content,) in self._ask("", _FILE, name)), None)

    @contextmanager
    def changing(self, name: str) -> Iterator[tuple[bytes | None, Callable[[bytes], object]]]:
        """A file's content, and what replaces it; nobody else changes it meanwhile."""
        with _translated(""), self._connection(time.monotonic() + PATIENCE) as connection, connection.transaction():
            connection.execute("LOCK TABLE smartserver_file IN SHARE ROW EXCLUSIVE MODE")
            row = connection.execute(_FILE, (name,)).fetchone()
            yield None if row is None else row[0], lambda content: connection.execute(_REPLACE, (name, content))

    def usage(self) -> tuple[int, int, int]:
        """The number of repositories that have records, of records, and of bytes of the table."""
        ((repositories, records, size),) = self._ask("", _USAGE)
        return repositories, records, size

    def close(self) -> None:
        """End the connections that nobody uses; what is asked next makes others."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _ask(self, path: str, query: str, *values: object) -> list[Any]:
        deadline = time.monotonic() + PATIENCE
        with _translated(path):
            with self._connection(deadline) as connection:
                try:
                    return connection.execute(query, values).fetchall()
                except psycopg.OperationalError:
                    if not connection.broken:
                        raise
            self.close()  # A restart of the database ended the idle connections.
            with self._connection(deadline) as connection:
                return connection.execute(query, values).fetchall()

    def _change(self, path: str, query: str, *values: object) -> list[Any]:
        with _translated(path), self._connection(time.monotonic() + PATIENCE) as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[_Connection]:
        """An idle one, or a new one. A connection that failed is closed, with all idle ones."""
        if self._process != os.getpid():  # The connections of the process that was forked, and its lock, are its own.
            self._process, self._idle, self._guard = os.getpid(), [], threading.Lock()
        with self._guard:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect(deadline)
        connection.deadline = deadline
        try:
            yield connection
        except BaseException:
            connection.close()
            self.close()
            raise
        self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        with self._guard:
            self._idle.append(connection)

    def _connect(self, deadline: float) -> _Connection:
        """A new one, made in a thread: to resolve a name, and to try each of its addresses, may take longer than that.
        One that is made too late is for the next call."""
        made: Future[_Connection] = Future()

        def connect() -> None:
            try:
                made.set_result(self._opened())
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=connect, name="database", daemon=True).start()
        try:
            return made.result(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            made.add_done_callback(lambda late: None if late.exception() else self._keep(late.result()))
            raise _no_answer() from None

    def _opened(self) -> _Connection:
        connection = _connected(self.address)
        try:
            found = connection.execute("SELECT schema, store FROM smartserver_cluster").fetchone()
            schema, store = found or (0, "")
            if schema != SCHEMA:
                raise Unsupported(f"version {schema} of the tables of the logs' database", str(SCHEMA))
            if store != self.store:
                raise Unsupported(f"a database with the logs of the store {store}", self.store)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Errors of the database as a store's."""
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise PermissionDenied(path, "the database of the logs is read-only") from error
    except psycopg.Error as error:
        # Where the database is, and as whom it is asked, is no matter of a client's.
        log.warning("the database of the logs: %s", str(error).partition("\n")[0])
        raise TransportFailed(path, "the database of the logs failed, or is away") from error
