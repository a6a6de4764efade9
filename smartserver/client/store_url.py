"""`hpss+sftp://[user@]host[:port]/path`, `hpss+s3://bucket/path` and `hpss+vfs://host[:port]/path`: a repository in the
files of a machine without smartserver, in a bucket, or on a server that only serves its files.

The server is a subprocess of the client, which reads and writes these files over the link. It is `smartserver serve
--stdio` with the URL of a transport: `sftp://...`, `s3://...` or `vfs://...`. So every verb works there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote

from smartserver.client.ssh_url import below_a_folder, parse_login
from smartserver.client.url import BadUrl
from smartserver.programs import python

PREFIX = "hpss+"
"""The prefix before the scheme of a store in the URLs for the plugins."""

SFTP, S3, VFS = "sftp", "s3", "vfs"

HOST_KEY = "host-key="
"""The option in the query of an sftp:// URL that gives the key of the machine (`transports.sftp`)."""


class StoreLocation(NamedTuple):
    """The place of a repository. `above` is the URL of the served folder for a transport. `path` continues from that,
    decoded, without a slash at either end. `folder` is the name of the served folder in `key`."""

    scheme: str
    where: str
    """The name of the machine in messages."""
    folder: str
    above: str
    """The URL of the served folder, which is also the user's name for it (`errors.known_as`)."""
    path: str

    @property
    def query(self) -> str:
        """The query of the URL with its `?`, which describes the machine (`?host-key=...`); empty if the URL has
        none."""
        _, mark, said = self.above.partition("?")
        return mark + said

    @property
    def key(self) -> str:
        """The canonical URL, under which the knowledge of the remote is stored."""
        return f"{self.scheme}://{self.where}/{self.folder}{self.path}"

    def command(self, flags: Iterable[str] = ()) -> list[str]:
        """Return the command that serves the place. `flags`: the flags of `-D` for the server."""
        ours = python("-m", "smartserver.cli.main", *(f"-D{flag}" for flag in flags))
        return [*ours, "serve", "--stdio", "--", self.above]


def parse_store(url: str) -> StoreLocation:
    """Parse a URL of a store.

    Raises:
        BadUrl: the URL is invalid, or has parts that its scheme does not allow.
    """
    scheme = url.partition("://")[0].lower()
    whole, mark, said = url.partition("?") if scheme == PREFIX + SFTP else (url, "", "")
    if scheme == PREFIX + S3 and "@" in whole.split("/")[2]:
        raise BadUrl(url, "access keys do not belong in the URL: set them in the environment")
    login = parse_login(whole, scheme)
    if scheme in (PREFIX + S3, PREFIX + VFS):
        if login.user:
            raise BadUrl(url, "leave out the user")
        if scheme == PREFIX + S3 and login.port:
            raise BadUrl(url, "leave out the port: AWS_ENDPOINT_URL names a store that is not Amazon's")
        return StoreLocation(scheme, login.where, "", f"{scheme.removeprefix(PREFIX)}://{login.where}/", login.path)
    if mark and not (said.startswith(HOST_KEY) and said != HOST_KEY):
        raise BadUrl(url, f"its query is not {HOST_KEY}SHA256:... or {HOST_KEY}any; in a path write ? as %3F")
    root, below = below_a_folder(whole, login.path)
    folder = "~/" if root == "." else f"{root[1:]}/"
    above = f"{SFTP}://{login.where}/{quote(folder)}{mark}{said}"
    return StoreLocation(scheme, login.where, folder, above, below)
