"""`smartserver keys`: what sshd needs to know of the keys of an access file."""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from pathlib import Path

import click

from smartserver.cli.access import FILE, is_shared, open_access
from smartserver.cli.errors import CommandError
from smartserver.cli.logs import log_to
from smartserver.server.rules import PublicKey


@click.command(short_help="Print the authorized_keys lines of an access file's keys.")
@FILE
@click.argument("root")
@click.option("--lookup", nargs=2, metavar="TYPE KEY", help="Only the line of this key; nothing where nobody has it.")
@click.option("--log", "place", default="syslog", show_default=True, metavar="FILE|syslog", help="As of `serve`.")
def command(file: str, root: str, lookup: tuple[str, str] | None, place: str) -> None:
    """Print a line of `authorized_keys` for each key of an access file. With it sshd lets that user do what the rules
    of the file say with the repositories below ROOT, and nothing else.

    The file has the keys of each user, as in a .pub file:

    \b
    [keys]
    anna = ["ssh-ed25519 AAAA... anna@laptop"]

    With --lookup it is an AuthorizedKeysCommand of sshd: one account of the machine then serves any number of people,
    and a key that is taken out of the file counts no more from the next log-in on. In sshd_config:

    \b
    Match User code
        AuthorizedKeysCommand /opt/bin/smartserver keys /etc/smartserver/access.toml /srv/code --lookup %t %k
        AuthorizedKeysCommandUser code

    \b
    smartserver keys /etc/smartserver/access.toml /srv/code > ~code/.ssh/authorized_keys
    """
    try:
        keys = open_access(file).rules.keys
    except CommandError as wrong:
        if lookup is not None:  # Of its standard error sshd logs nothing.
            with contextlib.suppress(CommandError):
                log_to(place, False, journal=False, audits=False)
                logging.getLogger("smartserver").error("nobody can log in by a key: %s", wrong)
        raise
    for key in keys:
        if lookup is None or lookup == (key.kind, key.content):
            click.echo(
                f'restrict,command="{_quoted(_serve(file, root, place, key))}" {key.kind} {key.content} {key.user}'
            )


def _serve(file: str, root: str, place: str, key: PublicKey) -> str:
    """The command of a key, by full paths: sshd runs it in the account's home."""
    program = Path(sys.argv[0]).absolute()
    if not program.is_file():
        raise CommandError(f"{program} is no program that sshd could run: call `smartserver` by its path")
    words = [str(program), "serve", str(Path(root).absolute()), "--stdio"]
    return shlex.join(
        [
            *words,
            "--access",
            file if is_shared(file) else str(Path(file).absolute()),
            "--log",
            place,
            "--user",
            key.user,
            "--key",
            key.fingerprint,
        ]
    )


def _quoted(text: str) -> str:
    """In double quotes of authorized_keys, where a backslash takes only a quote's meaning (sshd(8))."""
    if "\n" in text:
        raise CommandError(f"{text!r}: a line of authorized_keys cannot have a newline")
    return text.replace('"', '\\"')
