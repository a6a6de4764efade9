"""`smartserver`: the group of its commands, each loaded when it is asked for."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from typing import NoReturn

import click

import smartserver
from smartserver.cli.errors import CommandError

COMMANDS = {
    "serve": "smartserver.cli.serve",
    "demo": "smartserver.cli.demo",
    "bench": "smartserver.cli.bench",
    "verify": "smartserver.cli.verify",
    "ping": "smartserver.cli.ping",
    "setup": "smartserver.cli.setup",
    "docs": "smartserver.cli.docs",
}
"""Each module has a `command`."""


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
    "-D", "debug", multiple=True, metavar="FLAG", help="Trace: -Dhpss prints each call of the protocol on stderr."
)
@click.pass_context
def group(ctx: click.Context, debug: tuple[str, ...]) -> None:
    """Host version-control repositories so that every remote operation is one round trip.

    \b
    smartserver serve ~/repositories --anonymous write    serve a folder on 127.0.0.1:4155
    git push hpss://localhost/project main                the first push makes the repository
    smartserver demo                                      see what it saves on a slow link
    """
    unknown = [flag for flag in debug if flag != "hpss"]
    if unknown:
        raise click.UsageError(f"no such debug flag: -D{unknown[0]} (there is -Dhpss)")
    ctx.obj = frozenset(debug)


def main() -> None:
    """Run a command; what goes wrong is one line on stderr. Told to end, it takes away its servers and folders."""
    signal.signal(signal.SIGTERM, _end)
    try:
        code = group.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except CommandError as wrong:
        click.echo(f"smartserver: {wrong}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as wrong:
        click.echo(f"smartserver: {wrong.filename or 'output'}: {wrong.strerror or wrong}", err=True)
        with contextlib.suppress(OSError):
            sys.stdout.close()  # What it could not write it would try to once more at the end.
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _end(_signal: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
