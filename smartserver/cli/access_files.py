"""The rules and tokens of an access file, or the ones that the servers of a store share."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import cluster_of, is_store_url, local_place, open_store, postgres
from smartserver.server.rules import AccessFile
from smartserver.server.tokens import TokenFile, TokenPlace, token_path
from smartserver.server.watched import UnusableFile, WatchedSource
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.server.shared_files import SharedFiles
    from smartserver.store.postgres import Database

FILE = click.argument("file", metavar="FILE|STORE")


def open_access(place: str) -> AccessFile:
    """Return the rules of a file, or the rules that the servers of a store share."""
    source = _source(place, "access")
    try:
        return AccessFile(source or Path(place))
    except (UnusableFile, CodedError) as error:
        raise CommandError(f"{place}: {error}") from None


def open_tokens(place: str) -> TokenFile:
    """Return the tokens next to an access file, or the tokens that the servers of a store share."""
    source = _source(place, "tokens")
    path = token_path(Path(place))
    try:
        return TokenFile(source or path)
    except (UnusableFile, CodedError) as error:
        raise CommandError(f"{place if source else path}: {error}") from None


def is_shared(place: str) -> bool:
    """Tell whether the place of rules is a store, not a file."""
    return is_store_url(place) or os.path.isdir(place)


def tokens_of(place: str) -> Path | TokenPlace:
    """Return the access file, or the database, in which the tokens of a place are changed."""
    if not is_shared(place):
        return Path(place)
    database = database_of(place)
    from smartserver.server.shared_files import SharedTokens

    return SharedTokens(database)


def _source(place: str, name: str) -> WatchedSource | None:
    return _shared_files(place).source(name) if is_shared(place) else None


@functools.cache
def _shared_files(place: str) -> SharedFiles:
    """Return one object for all shared files of a store, because each object has a thread that polls their versions."""
    database = database_of(place)
    from smartserver.server.shared_files import SharedFiles

    return SharedFiles(database)


def database_of(store: str) -> Database:
    """Return the database of a store's logs."""
    store = local_place(store)
    found = cluster_of(store, open_store(store))
    if found is None:
        raise CommandError(
            f"{store} has no access rules, because it has no database: give a file, or see `smartserver cluster --help`"
        )
    made: Database = postgres().Database(found[2].log, found[2].store)
    return made
