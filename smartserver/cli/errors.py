"""The errors that end a command: one line for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from smartserver.client.medium import MediumError
from smartserver.client.request import NotOurProtocol
from smartserver.client.store_url import PREFIX
from smartserver.client.url import BadUrl
from smartserver.errors import name_from
from smartserver.trace.flags import BadFlag
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError


class CommandError(Exception):
    """The command could not do what was asked. Any function of a command may raise it; `main` prints it in one line."""

    status = 1
    """The status of the process."""


class UsageConflict(CommandError):
    """Its options contradict each other, or what they are used for."""

    status = 2


@contextmanager
def one_line(what: str = "", above: str = "") -> Iterator[None]:
    """Turn what a client may raise into a `CommandError`, with `what` it was about in front, unless the error names
    that. `above`: what a path of an error counts from (`errors.known_as`), where that was not said in it yet."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag) as error:
        if isinstance(error, CodedError):
            name_from(above, error)
        said = str(error)
        raise CommandError(said if not what or _names(said, what) else f"{what}: {said}") from error


def _names(said: str, what: str) -> bool:
    """True if a message has that place in it, or one below it: at its beginning, or in quotes."""
    name = what.partition("?")[0].removeprefix(PREFIX).rstrip("/")
    return "/" in name and bool(re.search(rf"\A{re.escape(name)}(?=[/: ]|\Z)|'{re.escape(name)}(?=['/])", said))
