"""`smartserver`: the group of its commands, each loaded when it is asked for."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from typing import NoReturn

import click

import smartserver
from smartserver.cli.errors import CommandError
from smartserver.client.plain import plain
from smartserver.trace.flags import VARIABLE, BadFlag, check

COMMANDS = {
    "serve": "smartserver.cli.serve",
    "demo": "smartserver.cli.demo",
    "bench": "smartserver.cli.bench.command",
    "push": "smartserver.cli.push",
    "pull": "smartserver.cli.pull",
    "baseline": "smartserver.cli.baseline.command",
    "verify": "smartserver.cli.verify",
    "list": "smartserver.cli.listing",
    "stats": "smartserver.cli.stats",
    "pack": "smartserver.cli.pack",
    "upgrade": "smartserver.cli.upgrade",
    "delete": "smartserver.cli.delete",
    "break-lock": "smartserver.cli.break_lock",
    "ping": "smartserver.cli.ping",
    "setup": "smartserver.cli.setup",
    "docs": "smartserver.cli.docs",
}
"""Each module has a `command`."""

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command. The second is that of a closed terminal: servers it started have a session of their own
and do not get it."""

OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE)
"""What a write may fail with; of a file it would have its name."""


class Commands(click.Group):
    """Loads a command's module when it is run or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(smartserver.__version__, prog_name="smartserver")
@click.option(
    "-D",
    "debug",
    multiple=True,
    metavar="FLAG",
    help="-Dhpss prints each call of the protocol on stderr, -Dhpssvfs also where VFS calls are made; "
    "-Dhpss-ban=RULE[,RULE] makes none that a rule bans. SMARTSERVER_DEBUG has such flags for git and brz, too.",
)
@click.pass_context
def group(ctx: click.Context, debug: tuple[str, ...]) -> None:
    """Host version-control repositories so that every remote operation is one round trip.

    \b
    smartserver serve ~/repositories --anonymous write    serve a folder on 127.0.0.1:4155
    git push hpss://localhost/project main                the first push makes the repository
    smartserver demo                                      see what it saves on a slow link
    """
    unknown = [flag for flag in debug if flag not in ("hpss", "hpssvfs") and not flag.startswith("hpss-ban=")]
    if unknown:
        known = "-Dhpss, -Dhpssvfs and -Dhpss-ban=RULE[,RULE]"
        raise click.UsageError(f"no such debug flag: -D{unknown[0]} (there are {known})")
    try:
        check(os.environ.get(VARIABLE, ""), VARIABLE)
    except BadFlag as wrong:
        raise click.UsageError(str(wrong)) from None
    ctx.obj = frozenset(debug)


def main() -> None:
    """Run a command; what goes wrong is one line on stderr. Told to end, it takes away its servers and folders."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # As nohup and `trap '' TERM` leave it.
            signal.signal(number, _end)
    try:
        code = group.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except CommandError as wrong:
        click.echo(f"smartserver: {plain(str(wrong))}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as wrong:
        place = wrong.filename or ("output" if wrong.errno in OF_OUTPUT else "")
        click.echo(f"smartserver: {f'{place}: ' if place else ''}{wrong.strerror or wrong}", err=True)
        with contextlib.suppress(OSError):
            sys.stdout.close()  # What it could not write it would try to once more at the end.
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _end(number: int, _frame: object) -> NoReturn:
    for each in ENDING:  # A second one must not end what tidies up after the first.
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
