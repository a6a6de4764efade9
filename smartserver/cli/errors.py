"""What ends a command: one line for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smartserver.cli.session import BadFlag
from smartserver.client.medium import MediumError
from smartserver.client.request import NotOurProtocol
from smartserver.client.url import BadUrl
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError


class CommandError(Exception):
    """The command could not do what was asked."""


@contextmanager
def one_line(what: str = "") -> Iterator[None]:
    """Turn what a client may raise into a `CommandError`, with `what` it was about in front."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag) as wrong:
        raise CommandError(f"{what}: {wrong}" if what else str(wrong)) from wrong
