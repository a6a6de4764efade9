"""What ends a command: one line for a person."""

from __future__ import annotations

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
    """The command could not do what was asked."""


@contextmanager
def one_line(what: str = "", above: str = "") -> Iterator[None]:
    """Turn what a client may raise into a `CommandError`, with `what` it was about in front, unless the error names
    that. `above`: what a path of an error counts from (`errors.known_as`), where that was not said in it yet."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag) as wrong:
        if isinstance(wrong, CodedError):
            name_from(above, wrong)
        said, name = str(wrong), what.partition("?")[0].removeprefix(PREFIX)
        is_named = "/" in name and (said.startswith(name) or f"'{name}" in said)
        raise CommandError(f"{what}: {said}" if what and not is_named else said) from wrong
