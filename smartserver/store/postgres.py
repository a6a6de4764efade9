"""`Database`: the tables of PostgreSQL in which several servers keep the logs of their repositories (`postgres_log`),
and the files that the servers share.

A record is published by one INSERT, which needs the row of the record that it follows, with its hash, and locks that
row: publishing and looking back are one statement. Records that are read together are read by one statement, so they
are consistent with each other.
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
"""The version of the tables. A server refuses tables of any other version."""
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
"""The statements that create the tables. Records are stored uncompressed, because they are mostly hashes.
`smartserver_file` has the files that servers share."""

PATIENCE = 4
"""Seconds after which a call fails if the database has not answered. They include the time to connect."""
CONNECT_TIMEOUT = 2
"""The timeout in seconds for connecting to each address of the database: the smallest that libpq accepts."""

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
    """Return the names of the options in a database's address that must not be stored: passwords and `passfile`.

    Raises:
        ValueError: the address is invalid.
    """
    try:
        options = psycopg.pq.Conninfo.parse(address.encode())
    except psycopg.Error as error:
        raise ValueError(str(error).strip()) from None
    return [o.keyword.decode() for o in options if o.val and (o.dispchar == b"*" or o.keyword == b"passfile")]


@contextmanager
def create_tables(address: str, store: str) -> Iterator[None]:
    """Create the tables for the logs of the store with the identity `store`, run the block, and commit. If the block
    raises an error, roll back."""
    with _translated(""), _connected(address) as connection, connection.transaction():
        if connection.execute("SELECT to_regclass('smartserver_record')").fetchone() != (None,):
            raise TransportFailed("", f"{address} has the tables of a store already: name an empty database")
        connection.execute(TABLES)
        connection.execute("INSERT INTO smartserver_cluster VALUES (%s, %s)", (SCHEMA, store))
        yield
        connection.deadline = time.monotonic() + PATIENCE


class _Connection(psycopg.Connection[Any]):
    """A connection whose waits end at `deadline`: no timeout of the kernel or server ends a wait for a frozen
    server."""

    deadline = math.inf
    """The time, by `time.monotonic`, at which a wait fails."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._until_deadline(gen), *args, **kwargs)

    def _until_deadline(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Forward the waits of psycopg, and raise an error after the deadline. psycopg resumes a wait ten times a
        second even if nothing arrived."""
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
    """Open a connection, with the deadline of its first statement."""
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
    """Return the path of a record below the store's root, for errors."""
    return paths.join(repository, record_path(number))


def _no_answer() -> psycopg.OperationalError:
    return psycopg.OperationalError(f"it did not answer within {PATIENCE} s")


class Database:
    """The database with the records of all repositories of one cluster. Several threads may use it. A forked process
    opens its own connections. Every method raises TransportFailed if the database cannot be reached."""

    def __init__(self, address: str, store: str) -> None:
        """`address`: a connection string of libpq. `store`: the identity of the store whose logs these are."""
        self.address, self.store = address, store
        self._guard = threading.Lock()
        self._process = 0
        self._idle: list[_Connection] = []

    def read(self, repository: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """Read the existing records among `numbers` in one consistent read. Return the contents by number."""
        return dict(self._ask(_path(repository, max(numbers)), _READ, repository, list(numbers)))

    def numbers(self, repository: str) -> list[int]:
        """Return the numbers of the existing records, ascending."""
        return [number for (number,) in self._ask(paths.join(repository, LOG), _NUMBERS, repository)]

    def stat(self, repository: str, number: int) -> Stat | None:
        """Return the size of a record, and the time of its publication; None if it does not exist."""
        for size, made in self._ask(_path(repository, number), _AGE, repository, number):
            return Stat(EntryKind.FILE, size, made)
        return None

    def publish(self, repository: str, content: bytes, path: str) -> dict[int, bytes]:
        """Add a record. Return the contents of the record and of its predecessor, by number; without the predecessor if
        the record begins a repository. The result is empty if the record does not follow the stored log, or its number
        is taken."""
        record = decode_record(content, path)
        row = repository, record.number, hash_of(content), content
        # The record before the one of a recovery may be missing.
        if record.number == 1 or any(entry.begins for entry in record.entries):
            return {record.number: content} if self._change(path, _FIRST, *row) else {}
        added = self._change(path, _NEXT, repository, record.number - 1, record.parent, *row)
        return {record.number: content, record.number - 1: added[0][0]} if added else {}

    def delete(self, repository: str, number: int) -> bool:
        """Delete a record durably. Return False if it does not exist."""
        return bool(self._change(_path(repository, number), _DELETE, repository, number))

    def versions(self) -> dict[str, int]:
        """Return the version of each file that servers share, by its name."""
        return dict(self._ask("", "SELECT name, version FROM smartserver_file"))

    def file(self, name: str) -> bytes | None:
        """Return the content of a file that servers share; None if it does not exist."""
        return next((content for (content,) in self._ask("", _FILE, name)), None)

    @contextmanager
    def changing(self, name: str) -> Iterator[tuple[bytes | None, Callable[[bytes], object]]]:
        """Lock the shared files, and yield a file's content and the function that replaces it."""
        with _translated(""), self._connection(time.monotonic() + PATIENCE) as connection, connection.transaction():
            connection.execute("LOCK TABLE smartserver_file IN SHARE ROW EXCLUSIVE MODE")
            row = connection.execute(_FILE, (name,)).fetchone()
            yield None if row is None else row[0], lambda content: connection.execute(_REPLACE, (name, content))

    def usage(self) -> tuple[int, int, int]:
        """Return the number of repositories with records, the number of records, and the bytes of their table."""
        ((repositories, records, size),) = self._ask("", _USAGE)
        return repositories, records, size

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
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
            self.close()  # A restart of the database has ended the idle connections.
            with self._connection(deadline) as connection:
                return connection.execute(query, values).fetchall()

    def _change(self, path: str, query: str, *values: object) -> list[Any]:
        with _translated(path), self._connection(time.monotonic() + PATIENCE) as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[_Connection]:
        """Yield an idle connection or a new one. If the block raises an error, close this connection and all idle
        connections."""
        if self._process != os.getpid():  # After a fork, the connections and the lock belong to the parent process.
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
        """Open a connection in a thread, because resolving a name and trying its addresses may pass the deadline. A
        connection that is opened too late is kept for the next call."""
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
    """Translate errors of the database to errors of a store."""
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise PermissionDenied(path, "the database of the logs is read-only") from error
    except psycopg.Error as error:
        # The address and the user of the database are not for clients to see.
        log.warning("the database of the logs: %s", str(error).partition("\n")[0])
        raise TransportFailed(path, "the database of the logs failed or cannot be reached") from error
