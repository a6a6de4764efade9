"""A repository by the folder it is in, and counts of things in words: for the commands that take a folder or a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.user import user
from smartserver.client.url import parse
from smartserver.errors import NoSuchRepository

if TYPE_CHECKING:
    from smartserver.store.repository import PackRepository


def is_url(place: str) -> bool:
    """Whether it is one and not a folder.

    Raises:
        CommandError: it is one, but not of ours.
    """
    if "://" not in place:
        return False
    with one_line():
        parse(place)  # Which says what it should begin with.
    return True


def check_folder(path: str) -> None:
    """Accept a folder that can be read.

    Raises:
        CommandError: it cannot, or is none.
    """
    if not os.path.isdir(path):
        raise CommandError(f"{path!r} is {'not a folder' if os.path.exists(path) else 'not there'}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise CommandError(f"{path} cannot be read by user {user()}")


@contextmanager
def repository_in(path: str) -> Iterator[PackRepository]:
    """The repository in a folder.

    Raises:
        CommandError: there is none, or what is done with it fails.
    """
    from smartserver.store.repository import PackRepository
    from transports.local import LocalTransport

    check_folder(path)
    repository = PackRepository(LocalTransport(path))
    try:
        with one_line(path):
            yield repository
    except CommandError as wrong:
        if isinstance(wrong.__cause__, NoSuchRepository):
            found = repository.instead()
            raise CommandError(
                f"{path} is not a repository of smartserver" + (f" but {found}" if found else "")
            ) from None
        raise


def count(number: int, what: str) -> str:
    """So many of them."""
    return f"{number:,} {what}{'s' * (number != 1)}"
