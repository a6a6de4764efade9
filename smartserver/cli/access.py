"""`smartserver access`: check an access file, and explain what it gives a user."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smartserver.cli.errors import CommandError
from smartserver.cli.place import cluster_of, is_store_url, near, open_store, postgres
from smartserver.server import jail
from smartserver.server.patterns import split_entry
from smartserver.server.rules import ANONYMOUS, EVERYBODY, WORDS, AccessFile, AccessLevel, is_user_name
from smartserver.server.tokens import TokenFile, TokenPlace, token_path
from smartserver.server.watched import Source, UnusableFile
from smartserver.verbs.declare import Permission
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.server.shared_files import SharedFiles
    from smartserver.store.postgres import Database

FILE = click.argument("file", metavar="FILE|STORE")

PERMISSIONS = {
    AccessLevel.READ: Permission.READ,
    AccessLevel.WRITE: Permission.WRITE,
    AccessLevel.CREATE: Permission.CREATE,
    AccessLevel.FORCE: Permission.FORCE,
    AccessLevel.DELETE: Permission.DELETE,
    AccessLevel.ADMIN: Permission.ADMIN,
}


def open_access(place: str) -> AccessFile:
    """The rules of a file, or those that the servers of a store share."""
    source = _source(place, "access")
    try:
        return AccessFile(source or Path(place))
    except (UnusableFile, CodedError) as wrong:
        raise CommandError(f"{place}: {wrong}") from None


def open_tokens(place: str) -> TokenFile:
    """The tokens beside an access file, or those that the servers of a store share."""
    source = _source(place, "tokens")
    path = token_path(Path(place))
    try:
        return TokenFile(source or path)
    except (UnusableFile, CodedError) as wrong:
        raise CommandError(f"{place if source else path}: {wrong}") from None


def is_shared(place: str) -> bool:
    """Whether the place of rules is a store, and no file."""
    return is_store_url(place) or os.path.isdir(place)


def tokens_of(place: str) -> Path | TokenPlace:
    """Where the tokens of such a place are changed."""
    if not is_shared(place):
        return Path(place)
    database = database_of(place)
    from smartserver.server.shared_files import SharedTokens

    return SharedTokens(database)


def _source(place: str, name: str) -> Source | None:
    return _shared_files(place).source(name) if is_shared(place) else None


@functools.cache
def _shared_files(place: str) -> SharedFiles:
    """One for all files of a store: it asks for their versions in a thread."""
    database = database_of(place)
    from smartserver.server.shared_files import SharedFiles

    return SharedFiles(database)


def database_of(store: str) -> Database:
    """The database of a store's logs.

    Raises:
        CommandError: it has none.
    """
    store = near(store)
    found = cluster_of(store, open_store(store))
    if found is None:
        raise CommandError(f"{store} has no logs in a database: see `smartserver cluster --help`")
    made: Database = postgres().Database(found[2].log, found[2].store)
    return made


@click.group(short_help="Check an access file, or explain what it gives a user.")
def command() -> None:
    """Check an access file of `smartserver serve --access FILE`, or explain what it gives a user. In place of a file
    STORE names rules that the servers of a store share: see `smartserver cluster access --help`.

    The file is TOML. The first rule that fits the user, the path of the repository and the ref decides; where none
    does, nothing is allowed. `may` is none, read, write (refs forward), create (repositories and refs), force (rewind
    and delete refs), delete (repositories) or admin (settings, such as HEAD), each with what is before it. A rule with
    `refs` is about changes of these alone. In a pattern * is any part of a name, ** any number of names.

    \b
    [groups]
    core = ["anna", "ben"]
    \b
    [[rules]]
    who = ["@core"]
    path = "project/**"
    may = "admin"
    \b
    [[rules]]
    who = ["ci"]
    path = "project/**"
    refs = ["refs/tags/build-*", "trunk:tags/build-*"]
    may = "create"
    \b
    [[rules]]
    who = ["*"]
    path = "project/**"
    may = "read"
    """


@command.command(short_help="Check an access file.")
@FILE
def check(file: str) -> None:
    """Check an access file before a server reads it.

    \b
    smartserver access check new.toml && mv new.toml /etc/smartserver/access.toml
    """
    rules = open_access(file).rules
    named = {key.user for key in rules.keys} | {each.text.user for each in open_tokens(file).content.known}
    for name in sorted(set().union(*[rule.users for rule in rules.rules]) - named - {EVERYBODY, ANONYMOUS}):
        click.echo(f"{file}: {name} has no key and no token", err=True)
    click.echo(f"{file}: {len(rules.rules)} rule{'s' if len(rules.rules) != 1 else ''}")


@command.command(short_help="Say whether a user may do something, and by which rule.")
@FILE
@click.argument("user")
@click.argument("level", type=click.Choice([word for word in WORDS if word != "none"]))
@click.argument("path")
@click.argument("ref", default="")
@click.pass_context
def explain(ctx: click.Context, file: str, user: str, level: str, path: str, ref: str) -> None:
    """Say whether USER may do something to the repository at PATH of a server, and which rule decides; the status is 1
    if not.

    With REF, of changes of that ref; of a brz tag, REF is BRANCH:tags/NAME, where BRANCH is . for one that is not in a
    shared repository, and of an hg bookmark :bookmarks/NAME. Users without a name are "anonymous".

    \b
    smartserver access explain access.toml anna write project/www refs/heads/main
    smartserver access explain access.toml anonymous read project/www
    """
    if not is_user_name(user):
        raise CommandError(f"{user!r} is no name of a user: letters, digits and _.@+- make one")
    try:
        path = jail.clean(path)
    except CodedError as wrong:
        raise CommandError(str(wrong)) from None
    needed = WORDS[level]
    if ref and not AccessLevel.WRITE <= needed <= AccessLevel.FORCE:
        raise CommandError(f"{level} is about the whole repository: leave out the ref")
    of, entry = split_entry(ref)
    name = (f"{of}\0{entry}" if entry else of).encode(errors="surrogateescape")
    found, rule = open_access(file).rules.decides(user, PERMISSIONS[needed], path, name)
    verdict = "yes" if found >= needed else "no"
    click.echo(f"{verdict}: {rule if rule is not None else 'no rule is about that'}")
    ctx.exit(0 if found >= needed else 1)
