"""Which branches lie at and below a place, whichever repositories they are in: one request for all of them; and how
a branch's name is a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from breezy import trace

from smartserver.client.listing import repositories
from smartserver.client.plain import plain
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.vcs.brz import BrzRepository
from smartserver.verbs.fields import HERE
from smartserver.verbs.repository_list import RepositoryField

if TYPE_CHECKING:
    from smartserver.plugins.breezy.transport import HpssTransport


def paths_below(place: HpssTransport) -> list[str]:
    """The paths of the branches at and below a place, as seen from there; that of one at it is empty."""
    own = place.location.path
    found: list[str] = []
    with in_breezys_words(place.base, place.location):
        place.server.settle()
        for each in repositories(place.server.client, own, refs=True):
            found += _branches(each)
    return below(found, own)


def path_of(ref: bytes) -> str:
    """The path of a branch as seen from its repository; that of one at it is empty."""
    return "" if ref == HERE else ref.decode("utf-8", "replace")


def below(paths: Iterable[str], own: str) -> list[str]:
    """Those at and below a path, as seen from there, in order."""
    if own:
        paths = [path[len(own) :] for path in paths if path == own or path.startswith(f"{own}/")]
    return sorted([path.strip("/") for path in paths])


def _branches(repository: RepositoryField) -> list[str]:
    if repository.problem:
        trace.warning("hpss: %s", plain(f"{repository.path}: {repository.problem}"))
    if repository.vcs != BrzRepository.vcs:
        return []
    return [f"{repository.path}/{path_of(ref)}".strip("/") for ref in repository.refs]
