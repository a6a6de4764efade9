"""Which branches lie at and below a place, whichever repositories they are in: one request for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from breezy import trace

from smartserver.client.listing import repositories
from smartserver.client.plain import plain
from smartserver.plugins.breezy_words import in_breezys_words
from smartserver.vcs.brz import BrzRepository
from smartserver.verbs.fields import HERE
from smartserver.verbs.repository_list import RepositoryField

if TYPE_CHECKING:
    from smartserver.plugins.breezy_transport import HpssTransport


def paths_below(place: HpssTransport) -> list[str]:
    """The paths of the branches at and below a place, as seen from there; that of one at it is empty."""
    own = place.location.path
    found: list[str] = []
    with in_breezys_words(place.base, place.location):
        place.server.settle()
        for each in repositories(place.server.client, own, refs=True):
            found += _branches(each)
    if own:
        found = [path[len(own) :] for path in found if path == own or path.startswith(f"{own}/")]
    return sorted([path.strip("/") for path in found])


def _branches(repository: RepositoryField) -> list[str]:
    if repository.problem:
        trace.warning("hpss: %s", plain(f"{repository.path}: {repository.problem}"))
    if repository.vcs != BrzRepository.vcs:
        return []
    names = [b"" if ref == HERE else ref for ref in repository.refs]
    return [f"{repository.path}/{name.decode('utf-8', 'replace')}".strip("/") for name in names]
