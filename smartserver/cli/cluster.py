"""`smartserver cluster`: a store that several servers share, with its logs in a database."""

from __future__ import annotations

import os
from pathlib import Path

import click

from smartserver.cli.access import database_of, open_access
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import above, cluster_of, count, is_store_url, near, open_store
from smartserver.store.cluster import Cluster, check_address, check_empty, mark
from smartserver.trace.text import size


@click.group()
def command() -> None:
    """Make and look at a store that several servers share.

    Servers of one store, in a folder that all of them mount or in a bucket, need nothing of each other. With the logs
    in PostgreSQL a change takes one statement there, and servers that push to one repository at once wait less.
    """


@command.command("init")
@click.argument("store")
@click.option("--log", "log_place", required=True, metavar="postgresql://...", help="The database for the logs.")
@click.pass_obj
def init(flags: frozenset[str], store: str, log_place: str) -> None:
    """Make the empty folder or bucket STORE one whose logs are in a database. Its tables are made there.

    The address is written to the file smartserver-cluster of STORE. Servers and commands then find the logs by
    themselves. A password is never part of it: each machine has that in ~/.pgpass, PGPASSFILE or PGPASSWORD.

    What is in another store is copied there by `smartserver push`.

    \b
    smartserver cluster init /mnt/shared/code --log postgresql://code@db.example.org/code
    smartserver cluster init s3://bucket/code --log postgresql://code@db.example.org/code
    """
    from smartserver.store.postgres_log import create_tables

    store = near(store)
    if "://" in store and not is_store_url(store):
        raise CommandError(f"{store} is no store: say a folder, or s3://bucket/prefix")
    with one_line(above(store)):
        transport, identity = open_store(store, flags), os.urandom(16).hex()
        if cluster_of(store, transport) is not None:
            raise CommandError(f"{store} has its logs in a database already: see `smartserver cluster status {store}`")
        cluster = Cluster(identity, check_address(log_place))
        check_empty(transport)
        create_tables(cluster.log, identity)
        mark(transport, cluster)
    click.echo(f"{store}: its logs are in {cluster.log}")


@command.command("access")
@click.argument("store")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def access(store: str, file: Path) -> None:
    """Put the rules of the access file FILE into the database of STORE, for servers that run with --access STORE.

    They count on all servers within a second, as do tokens that `smartserver token create STORE USER` makes or
    `smartserver token revoke STORE ID` takes back. While a server does not reach the database it lets nobody in.

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
@click.pass_obj
def status(flags: frozenset[str], store: str) -> None:
    """Say where the logs of the folder or bucket STORE are, and how large they are.

    \b
    smartserver cluster status s3://bucket/code
    """
    from smartserver.store.postgres_log import Database

    store = near(store)
    with one_line(above(store)):
        found = cluster_of(store, open_store(store, flags))
        if found is None:
            raise CommandError(f"{store} has no logs in a database: each repository has its own")
        cluster = found[2]
        repositories, records, bytes_taken = Database(cluster.log, cluster.store).usage()
    click.echo(f"logs in {cluster.log}, of the store {cluster.store}")
    click.echo(f"{repositories:,} repositories, {count(records, 'record')}, {size(bytes_taken)}")
