"""`smartserver cluster`: a store that several servers share, with its logs in a database."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import click

from smartserver.cli.access_files import database_of, open_access
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import above, cluster_of, count, local_place, open_store, postgres
from smartserver.store.cluster import Cluster, mark
from smartserver.trace.text import size
from transports.base import Transport
from transports.errors import NoSuchFile


@click.group()
def command() -> None:
    """Create or show a store that several servers share.

    Servers of one store, in a folder that all of them mount or in a bucket, do not communicate with each other. With
    the logs in PostgreSQL, a change takes one statement there, and concurrent pushes to one repository wait less.
    """


@command.command("init")
@click.argument("store")
@click.option("--log", "log_place", required=True, metavar="postgresql://...", help="The database for the logs.")
@click.pass_obj
def init(flags: frozenset[str], store: str, log_place: str) -> None:
    """Keep the logs of the empty folder or bucket STORE in a database, and create the tables there.

    The address of the database is written to the file smartserver-cluster of STORE, where servers and commands find it.
    It never has a password: each machine has that in ~/.pgpass, PGPASSFILE or PGPASSWORD.

    `smartserver push` copies repositories from another store.

    \b
    smartserver cluster init /mnt/shared/code --log postgresql://code@db.example.org/code
    smartserver cluster init s3://bucket/code --log postgresql://code@db.example.org/code
    """
    library, store = postgres(), local_place(store)
    _check_address(log_place, library.secrets_in)
    if "://" in store and not store.startswith("s3://"):
        raise CommandError(f"{store} cannot be shared by servers: give a folder, or s3://bucket/prefix")
    with one_line(above(store)):
        transport, identity = open_store(store, flags), os.urandom(16).hex()
        if cluster_of(store, transport) is not None:
            raise CommandError(f"{store} has its logs in a database already: see `smartserver cluster status {store}`")
        _check_empty(store, transport)
        with library.create_tables(log_place, identity):
            mark(transport, Cluster(identity, log_place))
    click.echo(f"{store}: its logs are in {log_place}")


@command.command("access")
@click.argument("store")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def access(store: str, file: Path) -> None:
    """Put the rules of the access file FILE into the database of STORE, for servers that run with --access STORE.

    All servers obey them within a second. The same holds for tokens that `smartserver token create STORE USER` makes
    or `smartserver token revoke STORE ID` revokes. While a server cannot reach the database, it admits no user.

    \b
    smartserver cluster access s3://bucket/code access.toml
    smartserver serve s3://bucket/code --access s3://bucket/code
    """
    content = open_access(str(file)).source.read()
    database = database_of(store)
    from smartserver.server.shared_files import RULES

    with one_line(above(store)), database.changing(RULES) as (_, replace):
        replace(content or b"")
    click.echo(f"{store}: the rules of {file} are in force")


@command.command("status")
@click.argument("store")
def status(store: str) -> None:
    """Print the database of the logs of the folder or bucket STORE, and their size.

    \b
    smartserver cluster status s3://bucket/code
    """
    database = database_of(store)
    with one_line(above(store)):
        repositories, records, bytes_taken = database.usage()
    click.echo(f"logs in {database.address}, of the store {database.store}")
    click.echo(f"repositories: {repositories:,}; {count(records, 'record')}, {size(bytes_taken)}")


def _check_address(address: str, secrets_in: Callable[[str], list[str]]) -> None:
    """Check the address of a database. It must have no password, because many users may read the file."""
    if not address.startswith(("postgresql://", "postgres://")):
        raise CommandError(f"--log {address!r}: expected postgresql://[user@]host[:port]/database")
    try:
        found = secrets_in(address)
    except ValueError as error:
        raise CommandError(f"--log: {error}") from None
    if found:
        instead = "put passwords on each machine into ~/.pgpass, PGPASSFILE or PGPASSWORD"
        raise CommandError(f"--log must not have {' and '.join(found)}: {instead}")


def _check_empty(place: str, store: Transport) -> None:
    """Check that a store is empty, because the logs of repositories in it would be hidden."""
    with contextlib.suppress(NoSuchFile):  # A prefix of a bucket exists only if it has files.
        for name in store.list_directory(""):
            raise CommandError(f"{place} has {name!r} already: give an empty place, then copy with `smartserver push`")
