"""`HpssTransport`: a place on a server, to Breezy a transport without files. No read of one ever reaches the network.

How a branch's name is a path is said here, too.

What Breezy looks for in files (bundles, `.bzr`) is not there: that is said here, at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from breezy import errors, trace, urlutils
from breezy.transport import ConnectedTransport, NoSuchFile

from smartserver.client.listing import repositories
from smartserver.client.places import parse_place
from smartserver.client.plain import plain
from smartserver.client.url import BadUrl, without_secrets
from smartserver.plugins.breezy.running import current, runs
from smartserver.plugins.breezy.server import Server, server_of
from smartserver.plugins.breezy.words import NoTrees, in_breezys_words
from smartserver.records.model import HERE
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.verbs.repository_list import RepositoryField


class NoBazaarProtocol(errors.NoSmartMedium):
    """The answer to `brz ping`."""

    _fmt = "There is no Bazaar smart protocol at %(transport)s: `smartserver ping URL` pings a server of hpss://."


class HpssTransport(ConnectedTransport):
    """A URL; those of one server share its connection."""

    def __init__(self, base: str, _from_transport: HpssTransport | None = None) -> None:
        whole, parameters = urlutils.split_segment_parameters(base)
        try:
            # Before Breezy does, which says it on two lines, and of a query leaves nothing.
            asked = whole.removesuffix("/") if "?" in whole else whole
            query = parse_place(asked).query
            super().__init__(urlutils.join_segment_parameters(asked.removesuffix(query), parameters), _from_transport)
            self.location = parse_place(urlutils.split_segment_parameters(self.base)[0] + query)
        except BadUrl as error:
            raise urlutils.InvalidURL(path=without_secrets(base), extra=str(error)) from None

    @property
    def server(self) -> Server:
        """The server, which all its transports share."""
        server = self._get_connection()
        if server is None:
            server = server_of(self.location)
            self._set_connection(server)
        return server

    def above(self, levels: int) -> HpssTransport:
        """The place so many folders further up."""
        return self.clone("/".join([".."] * levels)) if levels else self

    def branches(self) -> list[str]:
        """The paths of the branches at and below the place, as seen from there, whichever repositories they are in.

        One request asks for all of them; the path of a branch at the place itself is empty.
        """
        own = self.location.path
        found: list[str] = []
        with in_breezys_words(self.base, self.location):
            for repository in repositories(self.server.client, own, refs=True):
                found += _branches(repository)
        return below(found, own)

    # -- what Breezy asks of any transport

    def external_url(self) -> str:
        """The URL, as other programs read it."""
        return self.base

    def get_smart_medium(self) -> NoReturn:
        """Refuse: the server does not speak Bazaar's own protocol."""
        raise NoBazaarProtocol(self)

    def disconnect(self) -> None:
        """Close the connection."""
        server = self._get_connection()
        if server is not None:
            server.close()

    def listable(self) -> bool:
        """Return True for `brz branches -R`, which lists branches; a server has no folders."""
        return runs("branches")

    def has(self, relpath: str) -> bool:
        """There are no files."""
        return False

    def get(self, relpath: str) -> NoReturn:
        """There are no files."""
        raise NoSuchFile(self.abspath(relpath))

    get_bytes = stat = readlink = get

    def put_file(self, relpath: str, *arguments: object, **options: object) -> NoReturn:
        """Refuse: a server has no files."""
        raise errors.TransportNotPossible(f"there are no files on an hpss:// server: {self.abspath(relpath)}")

    append_file = open_write_stream = rename = delete = rmdir = put_file

    def mkdir(self, relpath: str, mode: int | None = None) -> None:
        """Folders need not be made: what is pushed there makes them."""

    def delete_tree(self, relpath: str) -> None:
        """Do nothing. Breezy undoes `mkdir` if the revision of a new branch does not exist."""
        if relpath not in (".", "") or current() is None:
            raise errors.TransportNotPossible(f"an hpss:// server has no folders: {self.abspath(relpath)}")

    def ensure_base(self, mode: int | None = None) -> bool:
        """Do nothing, as `mkdir`."""
        if runs("checkout"):
            raise NoTrees(self.base)
        return False

    def create_prefix(self, mode: int | None = None) -> None:
        """Do nothing, as `mkdir`."""


def path_of(ref: bytes) -> str:
    """The path of a branch as seen from its repository; that of one at it is empty."""
    return "" if ref == HERE else ref.decode("utf-8", "replace")


def below(paths: Iterable[str], own: str) -> list[str]:
    """The names at and below a path, relative to it, sorted."""
    if own:
        paths = [path[len(own) :] for path in paths if path == own or path.startswith(f"{own}/")]
    return sorted([path.strip("/") for path in paths])


def _branches(repository: RepositoryField) -> list[str]:
    if repository.problem:
        trace.warning("hpss: %s", plain(f"{repository.path}: {repository.problem}"))
    if repository.vcs != BrzRepository.vcs:
        return []
    return [f"{repository.path}/{path_of(ref)}".strip("/") for ref in repository.refs]
