"""`smartserver access`: check an access file, and explain what it gives a user."""

from __future__ import annotations

from pathlib import Path

import click

from smartserver.cli.errors import CommandError
from smartserver.server import jail
from smartserver.server.patterns import split_entry
from smartserver.server.rules import ANONYMOUS, EVERYBODY, WORDS, AccessFile, AccessLevel, is_user_name
from smartserver.server.tokens import TokenFile, token_path
from smartserver.server.watched import UnusableFile
from smartserver.verbs.declare import Permission
from transports.errors import CodedError

FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))

PERMISSIONS = {
    AccessLevel.READ: Permission.READ,
    AccessLevel.WRITE: Permission.WRITE,
    AccessLevel.CREATE: Permission.CREATE,
    AccessLevel.FORCE: Permission.FORCE,
    AccessLevel.DELETE: Permission.DELETE,
    AccessLevel.ADMIN: Permission.ADMIN,
}


def open_access(path: Path) -> AccessFile:
    """The rules of a file."""
    try:
        return AccessFile(path)
    except UnusableFile as wrong:
        raise CommandError(f"{path}: {wrong}") from None


def open_tokens(access: Path) -> TokenFile:
    """The tokens beside an access file."""
    path = token_path(access)
    try:
        return TokenFile(path)
    except UnusableFile as wrong:
        raise CommandError(f"{path}: {wrong}") from None


@click.group(short_help="Check an access file, or explain what it gives a user.")
def command() -> None:
    """Check an access file of `smartserver serve --access FILE`, or explain what it gives a user.

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
def check(file: Path) -> None:
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
def explain(ctx: click.Context, file: Path, user: str, level: str, path: str, ref: str) -> None:
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
