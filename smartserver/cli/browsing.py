"""The common part of `export`, `ls`, `cat` and `log`: read a revision of a repository in one request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.place import is_store_url, is_url
from smartserver.cli.session import repository_on_server
from smartserver.records.browse import ContentStream, Selector, encode_selector
from smartserver.records.varint import Malformed
from smartserver.spans import Part, span

if TYPE_CHECKING:
    from smartserver.client.repository import RemoteRepository

PLACE = "URL[@REV]"
"""The name of the argument in the help."""


def split_revision(place: str) -> tuple[str, str]:
    """Split a place from the revision after its `@`, which may be empty. In a URL, an `@` before the path belongs to
    the host. On this machine, an `@` in the name of an existing file or folder belongs to that name."""
    is_local = "://" not in place
    start = 0 if is_local else place.find("/", place.find("://") + 3)
    at = place.find("@", start) if start >= 0 else -1
    while is_local and at >= 0:
        end = place.find("/", at)
        if not os.path.lexists(place if end < 0 else place[:end]):
            break
        at = place.find("@", at + 1)
    if at < 0:
        return place, ""
    name = place[at + 1 :]
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise CommandError(f"{place!r}: the name of the revision is not UTF-8")
    return place[:at], name


def name_of(path: str) -> bytes:
    """Return a path of the command line in the form of paths in a tree: bytes without slashes at either end."""
    return os.fsencode(path).strip(b"/")


@contextmanager
def browsing(place: str, flags: Set[str], selector: Selector) -> Iterator[ContentStream]:
    """Read from the repository at a place (a folder, or the URL of a server or a store). Yield the answer to the
    selector."""
    if not (is_url(place) or is_store_url(place) or os.path.isdir(place) or "/" in place):
        raise CommandError(f"{place!r} does not exist")
    with one_line(place), _repository_at(place, flags) as repository:
        repository.below = True
        content = repository.read(encode_selector(selector))
        try:
            with span(Part.LOCAL, "write"):  # Its waits for the server have spans of their own.
                yield ContentStream(content.body)
        except Malformed as error:
            raise CommandError(f"{place}: the server's answer is damaged: {error}") from None


def _repository_at(place: str, flags: Set[str]) -> AbstractContextManager[RemoteRepository]:
    if is_url(place):
        return repository_on_server(place, flags)
    # Imported late: a store and a server in this process take 60 ms, which a request to another server should not.
    from smartserver.cli.copying import repository_at

    return repository_at(place, flags)


revision_argument = click.argument("place", metavar=PLACE)
