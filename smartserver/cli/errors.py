"""The errors that end a command, each with a message of one line for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from smartserver.client.medium import MediumError
from smartserver.client.request import NotOurProtocol
from smartserver.client.store_url import PREFIX
from smartserver.client.url import BadUrl
from smartserver.errors import CorruptFile, name_from
from smartserver.trace.flags import BadFlag
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError


class CommandError(Exception):
    """A command failed. Any function of a command may raise it; `main` prints it on one line."""

    status = 1
    """The exit status of the process."""


class UsageConflict(CommandError):
    """The options of a command contradict each other or its arguments."""

    status = 2


@contextmanager
def one_line(what: str = "", above: str = "") -> Iterator[None]:
    """Turn the errors of a client into a `CommandError`. `what`: the place, put before the message unless the message
    names it. `above`: the place to which paths in an error are relative (`errors.known_as`), if the error does not
    include it yet."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag) as error:
        if isinstance(error, CodedError):
            name_from(above, error)
        said = str(error)
        if isinstance(error, CorruptFile) and "`smartserver " not in said:
            said += "; `smartserver verify` lists all damage, and a backup repairs it"
        raise CommandError(said if not what or _names(said, what) else f"{what}: {said}") from error


def _names(said: str, what: str) -> bool:
    """Tell whether a message names the place `what`, or one below it, at its beginning or in quotes."""
    name = what.partition("?")[0].removeprefix(PREFIX).rstrip("/")
    return "/" in name and bool(re.search(rf"\A{re.escape(name)}(?=[/: ]|\Z)|'{re.escape(name)}(?=['/])", said))
