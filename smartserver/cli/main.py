"""`smartserver`: the group of its commands. The module of a command is imported when the command is used."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import io
import os
import signal
import sys

import click

import smartserver
from smartserver.cli.errors import CommandError
from smartserver.cli.interrupts import Interrupts
from smartserver.cli.streams import prepare_streams
from smartserver.client.plain import plain
from smartserver.client.url import without_secrets
from smartserver.meters import METERS, NANOSECONDS, Counts, Unit, counted, since
from smartserver.trace.flags import VARIABLE, BadFlag, combined, read

COMMANDS = {
    "serve": "smartserver.cli.serve",
    "cluster": "smartserver.cli.cluster",
    "access": "smartserver.cli.access",
    "agent": "smartserver.cli.agent",
    "token": "smartserver.cli.token",
    "trust": "smartserver.cli.trust",
    "push": "smartserver.cli.push",
    "pull": "smartserver.cli.pull",
    "dump": "smartserver.cli.dump",
    "load": "smartserver.cli.load",
    "export": "smartserver.cli.export",
    "ls": "smartserver.cli.ls",
    "cat": "smartserver.cli.cat",
    "log": "smartserver.cli.log",
    "import": "smartserver.cli.import_folder",
    "fast-export": "smartserver.cli.fast_export",
    "fast-import": "smartserver.cli.fast_import",
    "verify": "smartserver.cli.verify",
    "list": "smartserver.cli.listing",
    "stats": "smartserver.cli.stats",
    "config": "smartserver.cli.config",
    "pack": "smartserver.cli.pack",
    "break-lock": "smartserver.cli.break_lock",
    "upgrade": "smartserver.cli.upgrade",
    "recover": "smartserver.cli.recover",
    "hooks": "smartserver.cli.hooks",
    "prune": "smartserver.cli.prune",
    "delete": "smartserver.cli.delete",
    "ping": "smartserver.cli.ping",
    "tune": "smartserver.cli.tune",
    "trace": "smartserver.cli.trace",
    "setup": "smartserver.cli.setup",
    "docs": "smartserver.cli.docs",
}
"""Command name -> module; each module has a `command`."""

OF_ITSELF = ("access", "agent", "break-lock", "cluster", "hooks", "token", "trust", "trace", "tune", "setup", "docs")
"""Commands that make no call of the protocol themselves."""

OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EBADF)
"""The error numbers that a failed write to standard output may have. Such an error has no file name."""


class Commands(click.Group):
    """The group of commands, which imports a command's module when it is run or its help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with that name; None if it does not exist."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from smartserver.records.native import said  # Imported late to start fast.

        click.echo(f"smartserver, version {smartserver.__version__}" + (f"\n{said()}" if said() else ""))
        ctx.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_version,
    help="Show the version and exit.",
)
@click.option(
    "-D",
    "debug",
    multiple=True,
    metavar="FLAG",
    help="-Dhpss prints a line for each request on stderr and one for all of them, -Dhpssdetail also where the time "
    "went, -Dhpssvfs where VFS calls are made, -Dhpssbytes what goes over the connection; -Dhpss-json=FILE appends a "
    "trace to a file; -Dhpss-ban=RULE[,RULE] makes no call that a rule bans. SMARTSERVER_DEBUG has such flags for git, "
    "brz and hg, too.",
)
@click.option("--stats", is_flag=True, help="Print at the end, on stderr, what the command counted.")
@click.pass_context
def group(ctx: click.Context, debug: tuple[str, ...], stats: bool) -> None:
    """Host version-control repositories so that every remote operation is one round trip.

    \b
    smartserver serve ~/repositories --anonymous write    serve a folder on 127.0.0.1:4155
    git push hpss://localhost/project main                the first push makes the repository
    """
    try:
        read(debug).check("-D")
        given = combined(debug, os.environ.get(VARIABLE, ""))
        if given.rules:
            from smartserver.trace.bans.every import bans  # Imported only if a call is banned.
            from smartserver.trace.bans.rule import BadRule

            try:
                bans(given.rules)  # Refuse an invalid rule even if no call is made.
            except BadRule as error:
                raise BadFlag(str(error)) from None
    except BadFlag as error:
        raise click.UsageError(str(error)) from None
    if debug and ctx.invoked_subcommand in OF_ITSELF:
        raise click.UsageError(f"-D{debug[0]} has no effect with {ctx.invoked_subcommand}, which makes no call to show")
    ctx.obj = frozenset(debug)
    if stats:
        before = counted()
        ctx.call_on_close(lambda: _say_counts(since(counted(), before)))


def _say_counts(counts: Counts) -> None:
    """Print a line for each counter that is not zero."""
    for meter, number in zip(METERS, counts, strict=True):
        if number:
            value = f"{number / NANOSECONDS:.6f}" if meter.unit is Unit.SECONDS else f"{number:,}"
            click.echo(f"{meter.name:28} {value:>15}", err=True)


def main(command: click.Command = group, name: str = "smartserver") -> None:
    """Run a command and exit. An error is one line on stderr. After a signal, the command stops its servers and removes
    its temporary folders."""
    interrupts = Interrupts()
    try:
        interrupts.heed()
        try:
            code = command.main(prog_name=name, standalone_mode=False)
        except SystemExit as end:
            if interrupts.number or not isinstance(end.code, int):
                raise
            code = end.code
        sys.stdout.flush()
    except BaseException as error:
        code = None if interrupts.number else _say(error)
    interrupts.end()
    if interrupts.number:
        # Exit with the signal's status whatever the command returned: an exception that the signal raised inside a
        # library (`shutil.rmtree`, `threading`) may be replaced or lost, and child processes get the signal too.
        if interrupts.number == signal.SIGINT:
            click.echo("interrupted", err=True)
        sys.exit(128 + interrupts.number)
    gc.freeze()  # Otherwise Python's last collection takes 20 ms.
    sys.exit(code if isinstance(code, int) else 0)


def _say(error: BaseException) -> int:
    """Print an error as one line and return the exit status. An error that is not meant for users is raised again."""
    match error:
        case click.exceptions.Abort():
            click.echo("interrupted", err=True)
            return 130
        case click.ClickException():
            said = io.StringIO()
            error.show(file=said)
            click.echo(without_secrets(said.getvalue()), err=True, nl=False)
            return error.exit_code
        case CommandError():
            click.echo(f"smartserver: {without_secrets(plain(str(error)))}", err=True)
            return error.status
        case BrokenPipeError():
            sys.stderr.close()
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] == "netem":
            click.echo("smartserver: emulated links need netem: in a checkout, pip install ./netem", err=True)
        case OSError():
            place = error.filename or ("output" if error.errno in OF_OUTPUT else "")
            why = f"{f'{place}: ' if place else ''}{error.strerror or error}"
            click.echo(f"smartserver: {without_secrets(why)}", err=True)
            with contextlib.suppress(OSError):
                sys.stdout.close()  # Otherwise Python would try to write the rest again at its end.
        case _:
            raise error
    return 1


if __name__ == "__main__":
    prepare_streams()
    main()
