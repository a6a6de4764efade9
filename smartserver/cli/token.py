"""`smartserver token`: the tokens of an access file, which identify users over TCP."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from smartserver.cli.access_files import is_shared, open_access, tokens_of
from smartserver.cli.errors import CommandError
from smartserver.server.tokens import Token, TokenChanges, token_path
from smartserver.server.watched import UnusableFile

ACCESS_FILE = click.argument("access_file", metavar="ACCESS-FILE|STORE")

SECONDS = {"h": 3600, "d": 24 * 3600}

DAY = "%Y-%m-%d %H:%M"


@click.group(short_help="Create, list and revoke the tokens of an access file.")
def command() -> None:
    """Create, list and revoke the tokens of an access file. A client that sends a token over TCP is its user.

    A token is as good as a password. Clients send it only over TLS, or to a server on their own machine. The file
    ACCESS-FILE.tokens has a hash of each token. Servers read it again when it changes: a revoked or expired token is
    refused from the next request on. In place of the file, STORE names the tokens that the servers of a store share;
    there a revoked token is refused after a second.

    \b
    smartserver token create /etc/smartserver/access.toml ci --path 'project/**' --expires 90d
    """


@command.command(short_help="Print a new token.")
@ACCESS_FILE
@click.argument("name")
@click.option("--path", metavar="PATTERN", help="Only for repositories with such a path, as in a rule: project/**.")
@click.option("--read-only", is_flag=True, help="Only for reading.")
@click.option("--expires", metavar="DAYS", help="How long it is valid: 90d, or 12h. Default: until it is revoked.")
def create(access_file: str, name: str, path: str | None, read_only: bool, expires: str | None) -> None:
    """Print a new token for the user NAME. It cannot be shown again.

    The token has the rights that the access file gives the user. --path and --read-only restrict them.

    \b
    TOKEN=$(smartserver token create /etc/smartserver/access.toml anna)
    """
    rules = open_access(access_file).rules
    now = int(time.time())
    end = None if expires is None else now + _seconds(expires)
    with _one_line(access_file):
        token, token_id = TokenChanges(tokens_of(access_file)).create(name, now, end, path, read_only=read_only)
    if not rules.knows(name):
        click.echo(f"{access_file} has no rule that gives {name} anything", err=True)
    click.echo(f"token {token_id} of {name}, valid {_until(end)}; it is not shown again:", err=True)
    click.echo(token)


@command.command("list", short_help="List the tokens.")
@ACCESS_FILE
def listing(access_file: str) -> None:
    """List the tokens: the id, the user, the time of creation, the validity, and the restrictions of each."""
    open_access(access_file)
    with _one_line(access_file):
        tokens = TokenChanges(tokens_of(access_file)).listing()
    for token in tokens:
        click.echo("  ".join([token.id, token.user, _time(token.created), _validity(token), *_scope(token)]))


@command.command(short_help="Revoke a token.")
@ACCESS_FILE
@click.argument("token_id", metavar="ID")
def revoke(access_file: str, token_id: str) -> None:
    """Revoke the token ID. `smartserver token list` and the log of a server show the ids."""
    with _one_line(access_file):
        token = TokenChanges(tokens_of(access_file)).revoke(token_id)
    click.echo(f"token {token_id} of {token.user} is revoked", err=True)


@contextmanager
def _one_line(access_file: str) -> Iterator[None]:
    try:
        yield
    except UnusableFile as error:
        place = access_file if is_shared(access_file) else token_path(Path(access_file))
        raise CommandError(f"{place}: {error}") from None


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([hd])", text)
    if found is None:
        raise CommandError(f"--expires {text!r}: expected a number of days or hours, as 90d or 12h")
    return int(found[1]) * SECONDS[found[2]]


def _time(seconds: int) -> str:
    return time.strftime(DAY, time.localtime(seconds))


def _until(end: int | None) -> str:
    return "until it is revoked" if end is None else f"until {_time(end)}"


def _validity(token: Token) -> str:
    if token.expires is not None and token.has_expired(time.time()):
        return f"expired {_time(token.expires)}"
    return _until(token.expires)


def _scope(token: Token) -> list[str]:
    return [*([] if token.path is None else [f"path {token.path}"]), *(["read only"] if token.read_only else [])]
