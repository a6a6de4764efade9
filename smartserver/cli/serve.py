"""`smartserver serve`: serve the repositories below a folder."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import sys
from pathlib import Path
from typing import cast

import click

from smartserver.cli.errors import CommandError
from smartserver.client.url import DEFAULT_PORT

STOP_AFTER = 30.0
"""Seconds a server that was told to stop lets open requests finish."""

DESCRIPTORS = 65_536
"""Open files asked for; the usual limit of 1,024 is one of shells, not of servers."""

_ARENA_MAX = -8
"""mallopt: the number of heaps threads take memory from (malloc.h of glibc)."""


def parse_listen(text: str) -> tuple[str, int]:
    """HOST:PORT, :PORT, HOST or [IPV6]:PORT.

    Raises:
        CommandError: it is none of them.
    """
    host, colon, port = text.rpartition(":")
    if not colon and text.isascii() and text.isdigit():
        raise CommandError(f"--listen {text!r}: expected HOST:PORT; for that port alone write :{text}")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, str(DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise CommandError(f"--listen {text!r}: expected HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command()
@click.argument("root", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--listen",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.",
)
@click.option("--stdio", is_flag=True, help="Serve one client on standard input and output, as the invoking user.")
@click.option(
    "--anonymous",
    type=click.Choice(["none", "read", "write"]),
    default="read",
    show_default=True,
    help="What users may do over TCP. Force and delete are for clients on this machine only.",
)
@click.option("--no-create", is_flag=True, help="Make no new repositories.")
@click.option("-v", "--verbose", is_flag=True, help="Log connections and refusals.")
def command(root: Path, listen: str, stdio: bool, anonymous: str, no_create: bool, verbose: bool) -> None:
    """Serve the repositories below the folder ROOT over hpss://.

    \b
    smartserver serve ~/repositories
    smartserver serve /srv/code --listen 0.0.0.0:4155 --anonymous read
    smartserver serve ~/repositories --anonymous write --no-create
    ssh host smartserver serve /srv/code --stdio
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr
    )
    if not root.is_dir():
        raise CommandError(f"{root} is not a folder: make it first, or name another")
    if not os.access(root, os.R_OK | os.X_OK):
        raise CommandError(f"{root} cannot be read by user {user()}")
    host, port = ("", 0) if stdio else parse_listen(listen)

    # Loaded late: the reactor costs 150 ms, which a mistyped option should not.
    from twisted.internet import error
    from twisted.internet import reactor as untyped

    from smartserver.server import stdio as stdio_shell
    from smartserver.server import tcp
    from smartserver.server.access import Anonymous
    from smartserver.server.executor import Lane
    from smartserver.server.shell import Sessions
    from smartserver.server.site import Site
    from smartserver.server.startup import Reactor, inside_of, tidy_all
    from smartserver.server.threads import ThreadExecutor
    from transports.local import LocalTransport

    _use_one_heap()
    _raise_descriptors()
    reactor = cast("Reactor", untyped)
    transport = LocalTransport(root)
    site = Site(transport, may_create=not no_create, inside=inside_of(transport))
    executor = ThreadExecutor(reactor.callFromThread)
    sessions = Sessions(site, executor, reactor)

    def stop() -> None:
        with contextlib.suppress(error.ReactorNotRunning):  # A signal came first.
            reactor.stop()

    if stdio:
        session = stdio_shell.serve(sessions, user())
        session.when_lost = stop
    else:
        try:
            listening = tcp.listen(reactor, sessions, host, port, Anonymous(anonymous))
        except error.CannotListenError as wrong:
            reason = getattr(wrong.socketError, "strerror", None) or str(wrong.socketError)
            raise CommandError(f"cannot listen on {host}:{port}: {reason}") from None
        actual = listening.getHost().port
        shown = f"[{host}]" if ":" in host else host
        serving = f"serving {root} on hpss://{shown}:{actual}/ (anonymous users: {anonymous})"
        # Said once it runs: from then on it can be told to stop.
        reactor.callLater(0, lambda: click.echo(serving, err=True))
        stopping = sessions.stop_within(STOP_AFTER)
        reactor.addSystemEventTrigger("before", "shutdown", lambda: (listening.stopListening(), stopping())[1])
    if not stdio:  # Once a server, not once for each client that sshd lets in.
        executor.run(lambda: tidy_all(site), lambda _: None, Lane.LONG)
    reactor.addSystemEventTrigger("after", "shutdown", executor.stop)
    reactor.run()


def _raise_descriptors() -> None:
    """Ask for as many open files as the system grants: packs of many repositories, and a socket a client."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _use_one_heap() -> None:
    """Let no thread keep a heap of its own: after two pushes of a large history that saves a quarter of all memory."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # Only glibc has such heaps.
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def user() -> str:
    """The name of who runs this, else the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
