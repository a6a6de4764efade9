"""A writer of a repository, as a process that may be killed: it pushes a line of revisions one by one to a ref of its
own, and says each that was acknowledged.

    python mixed_writer.py WAY URL NAME FIRST LAST CONFIG

WAY: `rpc` (URL is hpss://), `vfs` (vfs://) or `sftp` (sftp://, CONFIG a file for ssh).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from builders import History
from history_sources import NEW, HistorySource

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.places import connect, parse_place
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import DivergedBranches
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from transports.base import Transport
from transports.registry import open_url
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in


def store(way: str, url: str, config: str) -> Transport:
    """The files at a URL."""
    if way == "vfs":
        return open_url(url)
    parts = urlsplit(url)
    account = Account(parts.hostname or "", port=parts.port or 0, config=config)
    return SftpTransport(Line(lambda: log_in(account)), parts.path, url)


@contextmanager
def connected(way: str, url: str, config: str) -> Iterator[RemoteRepository]:
    """The repository, by one of the ways."""
    if way == "rpc":
        place = parse_place(url)
        with Client(lambda: connect(place, "ssh")) as client:
            yield RemoteRepository(client, place.path, Knowledge(None, url))
        return
    above, _, name = url.rpartition("/")
    site = Site(store(way, above, config), tidies=False)
    with Client(lambda: SameProcess(site, invoking_user("writer"))) as client:
        yield RemoteRepository(client, name, Knowledge(None, url))


def main() -> None:
    way, url, name, first, last, config = sys.argv[1:]
    history = History()
    line = history.line(int(last), name=name)
    with connected(way, url, config) as remote:
        for number in range(int(first), int(last)):
            update = RefUpdate(f"refs/heads/{name}".encode(), line[number])
            (done,) = remote.push(PushRequest([update], HistorySource(history), NEW)).refs
            # The one before it may have pushed more than its parent read before it was killed.
            is_past = isinstance(done.error, DivergedBranches) and done.error.behind
            assert is_past or done.outcome in (Outcome.DONE, Outcome.UNCHANGED), done
            print(number, flush=True)


if __name__ == "__main__":
    main()
