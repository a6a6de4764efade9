"""`HpssTransport`: a place on a server, which to Breezy is a transport without files. Reading a file makes no request.

Breezy looks for files (bundles, `.bzr`) that no server has, and gets the error at once. Functions for the paths and
names of branches are here, too.
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
    """The error of commands that need a server of Breezy's own protocol, such as `brz ping`."""

    _fmt = "There is no Bazaar smart protocol at %(transport)s: `smartserver ping URL` pings a server of hpss://."


class HpssTransport(ConnectedTransport):
    """A Breezy transport for a URL. The transports of one server share a connection."""

    def __init__(self, base: str, _from_transport: HpssTransport | None = None) -> None:
        whole, parameters = urlutils.split_segment_parameters(base)
        try:
            # Check the URL before Breezy does: its error takes two lines, and it drops a query.
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
        """Return the place that is `levels` folders further up."""
        return self.clone("/".join([".."] * levels)) if levels else self

    def branches(self) -> list[str]:
        """Return the paths of the branches at and below the place, relative to it, in all repositories. One request
        finds all of them. The path of a branch at the place itself is empty."""
        own = self.location.path
        found: list[str] = []
        with in_breezys_words(self.base, self.location):
            for repository in repositories(self.server.client, own, refs=True):
                found += _branches(repository)
        return below(found, own)

    # -- the methods of any transport

    def external_url(self) -> str:
        """Return the URL in the form that other programs read."""
        return self.base

    def get_smart_medium(self) -> NoReturn:
        """Raise an error, because the server does not speak Bazaar's own protocol."""
        raise NoBazaarProtocol(self)

    def disconnect(self) -> None:
        """Close the connection."""
        server = self._get_connection()
        if server is not None:
            server.close()

    def listable(self) -> bool:
        """Tell whether folders can be listed. This is True only for `brz branches -R`, for which branches are listed,
        because a server has no folders."""
        return runs("branches")

    def has(self, relpath: str) -> bool:
        """Return False: a server has no files."""
        return False

    def get(self, relpath: str) -> NoReturn:
        """Raise the error of a missing file, because a server has no files."""
        raise NoSuchFile(self.abspath(relpath))

    get_bytes = stat = readlink = get

    def put_file(self, relpath: str, *arguments: object, **options: object) -> NoReturn:
        """Raise an error, because a server has no files to change."""
        raise errors.TransportNotPossible(f"there are no files on an hpss:// server: {self.abspath(relpath)}")

    append_file = open_write_stream = rename = delete = rmdir = put_file

    def mkdir(self, relpath: str, mode: int | None = None) -> None:
        """Do nothing: a push creates the folders that it needs."""

    def delete_tree(self, relpath: str) -> None:
        """Do nothing for the place itself, because Breezy undoes `mkdir` if the revision of a new branch does not
        exist. Raise an error in any other case."""
        if relpath not in (".", "") or current() is None:
            raise errors.TransportNotPossible(
                f"a folder on an hpss:// server cannot be deleted: {self.abspath(relpath)}"
            )

    def ensure_base(self, mode: int | None = None) -> bool:
        """Create nothing, like `mkdir`, and return False. `brz checkout` into a server is refused."""
        if runs("checkout"):
            raise NoTrees(self.base)
        return False

    def create_prefix(self, mode: int | None = None) -> None:
        """Do nothing, like `mkdir`."""


def path_of(ref: bytes) -> str:
    """Return the path of a branch relative to its repository; empty for the branch at the repository itself."""
    return "" if ref == HERE else ref.decode("utf-8", "replace")


def below(paths: Iterable[str], own: str) -> list[str]:
    """Return the `paths` that are at or below a path, sorted and relative to it."""
    if own:
        paths = [path[len(own) :] for path in paths if path == own or path.startswith(f"{own}/")]
    return sorted([path.strip("/") for path in paths])


def _branches(repository: RepositoryField) -> list[str]:
    if repository.problem:
        trace.warning("hpss: %s", plain(f"{repository.path}: {repository.problem}"))
    if repository.vcs != BrzRepository.vcs:
        return []
    return [f"{repository.path}/{path_of(ref)}".strip("/") for ref in repository.refs]
