"""What the commands that talk to a server share: a client for a URL, with the tracer where it was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from contextlib import contextmanager

import click

import smartserver
from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.url import Location, parse
from smartserver.trace import text


@contextmanager
def client_for(url: str, flags: Set[str]) -> Iterator[tuple[Client, Location]]:
    """A client for the server of a URL, and what the URL says.

    Raises:
        BadUrl: it is not one.
    """
    location = parse(url)
    recorder = text.printing(lambda line: click.echo(line, err=True)) if "hpss" in flags else None

    def connect() -> TcpMedium:
        if recorder is not None:
            recorder.connected()
        return TcpMedium(location.host, location.port)

    observers = [recorder] if recorder is not None else []
    with Client(connect, observers, agent=f"smartserver/{smartserver.__version__}", progress=_progress) as client:
        try:
            yield client, location
        finally:
            if recorder is not None:
                click.echo(text.summary(recorder, time.monotonic()), err=True)


def _progress(phase: str, done: int, total: int) -> None:
    if total:
        click.echo(f"\r{phase}: {100 * done // total} %", err=True, nl=done >= total)
