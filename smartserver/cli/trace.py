"""`smartserver trace`: record and show where the time of a command went."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from smartserver.cli.errors import CommandError
from smartserver.client.plain import plain
from smartserver.trace.events import CommandEnded
from smartserver.trace.file import TraceFile, open_trace
from smartserver.trace.flags import FILE, VARIABLE
from smartserver.trace.html import html
from smartserver.trace.perfetto import perfetto
from smartserver.trace.predict import LinkEstimate
from smartserver.trace.report import lines
from smartserver.trace.tracing import PARENT
from smartserver.trace.wait import BadTrace, Trace, traces


@click.group()
def command() -> None:
    """Show where the time of a command went.

    \b
    smartserver trace run -- git push
    smartserver trace run -o slow.trace -- brz push
    smartserver trace show slow.trace
    smartserver trace explain slow.trace
    smartserver trace diff fast.trace slow.trace
    """


@command.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", metavar="FILE", help="Append the trace to it, and show nothing.")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
@click.pass_context
def run(ctx: click.Context, output: str | None, words: tuple[str, ...]) -> None:
    """Run a command of git, brz, hg or smartserver, and show on stderr where its time went.

    The exit status is that of the command.

    \b
    smartserver trace run -- git fetch
    smartserver trace run -o slow.trace -- hg pull
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.abspath(output or os.path.join(folder, "trace"))
        trace = os.urandom(16).hex()
        debug = [each for each in os.environ.get(VARIABLE, "").split(",") if each and not each.startswith(FILE)]
        environment = {
            **os.environ,
            VARIABLE: ",".join([FILE + path, *debug]),
            PARENT: f"00-{trace}-{os.urandom(8).hex()}-01",
        }
        if "," in path:
            raise CommandError(f"no trace can be written to {path}: the path must not have a comma")
        try:
            os.close(open_trace(path))
        except OSError as error:
            raise CommandError(f"no trace can be written to {path}: {error.strerror}") from None
        program = shutil.which(words[0]) or words[0]
        if "/" not in program:  # Otherwise the error may be about an unreadable folder of PATH.
            raise CommandError(f"{program} cannot be run: {os.strerror(errno.ENOENT)}")
        start = time.monotonic_ns() // 1000
        try:
            process = subprocess.Popen([program, *words[1:]], env=environment)
        except OSError as error:
            raise CommandError(f"{words[0]} cannot be run: {error.strerror}") from None
        status = _wait_for(process)
        end = time.monotonic_ns() // 1000
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # The command is the only child.
        cpu = round((used.ru_utime + used.ru_stime) * 1e6)
        ended = CommandEnded(process.pid, os.path.basename(words[0]), trace, start, end, status, cpu)
        try:
            file = TraceFile(path)
            file.append(ended)
            file.close()
            if file.problem:
                raise CommandError(f"the trace is incomplete: {file.problem}")
            if output is None:
                click.echo(_text(_read(Path(path))), err=True, nl=False)
        except (OSError, CommandError) as error:  # The exit status stays that of the command.
            click.echo(f"smartserver: {error}", err=True)
    ctx.exit(status if status >= 0 else 128 - status)


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command and return its exit status. Signals are passed on, except SIGINT, which the terminal itself
    sends to the command."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: None if number == signal.SIGINT else process.send_signal(number))
        return process.wait()
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _text(found: Sequence[Trace]) -> bytes:
    return "".join(f"{plain(line)}\n" for trace in found for line in lines(trace)).encode()


VIEWS: dict[str, Callable[[Sequence[Trace]], bytes]] = {
    "text": _text, "html": html, "perfetto": perfetto,
}  # fmt: skip
"""The output formats of a trace."""


@command.command()
@click.option("--text", "view", flag_value="text", default=True, help="Lines to read (default).")
@click.option("--html", "view", flag_value="html", help="A page with a time axis, for a browser.")
@click.option("--perfetto", "view", flag_value="perfetto", help="Chrome's trace events, for ui.perfetto.dev.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Write it there, not to stdout.")
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path, view: str, output: Path | None) -> None:
    """Show the commands of a trace: their requests, and where the time went.

    The HTML page is a single file that opens from disk and can be sent to others. Like the trace, it names repositories
    and branches, and only you may read the file that -o makes.

    \b
    smartserver trace show slow.trace
    smartserver trace show --html -o slow.html slow.trace
    smartserver trace show --perfetto -o slow.json slow.trace
    """
    shown = VIEWS[view](_read(file))
    if output is None:
        click.echo(shown, nl=False)
        return
    try:
        with open(output, "wb", opener=_private) as opened:
            opened.write(shown)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from None


def _read(file: Path) -> list[Trace]:
    try:
        if file.exists() and not file.is_file():
            raise CommandError(f"{file} is not an ordinary file")
        return traces(file.read_bytes().splitlines())
    except BadTrace as error:
        raise CommandError(f"{file}: {error}") from None
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None


def _private(name: str, flags: int) -> int:
    """Open a file. A new file can be read only by its owner."""
    return os.open(name, flags, 0o600)


@command.command()
@click.option("--rtt", metavar="TIME", help="Also say how long it takes on a link with this round-trip time.")
@click.option("--rate", metavar="RATE", help="And with this rate; default: no limit.")
@click.argument("file", type=click.Path(path_type=Path))
def explain(file: Path, rtt: str | None, rate: str | None) -> None:
    """Explain the cost of the commands of a trace: needless requests, and where the rest of the time went.

    Each needless request is listed with the line of the program that made it, and a remedy.

    \b
    smartserver trace explain slow.trace
    smartserver trace explain --rtt 200ms --rate 10mbit slow.trace
    """
    from smartserver.trace.explain import lines

    link = _link(rtt, rate)
    said = "\n\n".join("\n".join(map(plain, lines(trace, link))) for trace in _read(file))
    click.echo(said)


@command.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
def diff(first: Path, second: Path) -> None:
    """Show which part of the wait grew from trace A to trace B, and the requests that are in one of them only.

    If a file has several commands, the last one is compared.

    \b
    smartserver trace diff fast.trace slow.trace
    """
    from smartserver.trace.diff import lines

    for line in lines(_read(first)[-1], _read(second)[-1]):
        click.echo(plain(line))


def _link(rtt: str | None, rate: str | None) -> LinkEstimate | None:
    """Return the link of the prediction; None if no prediction is requested."""
    if rtt is None:
        if rate is not None:
            raise CommandError("a prediction needs --rtt TIME")
        return None
    from netem.units import parse_rate, parse_time  # A client may be installed without netem.

    try:
        return LinkEstimate(parse_time(rtt), parse_rate(rate) if rate is not None else 0.0)
    except ValueError as error:
        raise CommandError(str(error)) from None
