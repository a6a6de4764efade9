"""Open the place of a command: a folder, the URL of a server, or the URL of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.session import Untraced, client_for, lasting_observers, tracing_for
from smartserver.cli.user import user
from smartserver.client.places import parse_place
from smartserver.client.store_url import PREFIX, VFS
from smartserver.errors import NoSuchRepository
from transports.base import Transport
from transports.registry import OPENERS, open_url

if TYPE_CHECKING:
    from types import ModuleType

    from smartserver.client.call import RequestT, ResultT
    from smartserver.store.cluster import Cluster
    from smartserver.store.repository import PackRepository
    from smartserver.verbs.declare import Verb
    from smartserver.wire.observer import Observer


def is_url(place: str) -> bool:
    """Tell whether a place is the URL of an hpss server, not a folder or the URL of a store (`is_store_url`)."""
    if "://" not in place or is_store_url(place):
        return False
    with one_line():
        parse_place(place)  # Raises an error that lists the schemes.
    return True


def between_servers(source: str, target: str) -> str:
    """Return the error message for two places that are both on servers."""
    steps = f"`smartserver pull {source} FOLDER`, then `smartserver push FOLDER {target}`"
    return f"{source} and {target} are both on servers: copy through a local folder with {steps}"


def is_store_url(place: str) -> bool:
    """Tell whether a place is the URL of a store, e.g. sftp://host/path, whose files are read and written remotely."""
    scheme, colon, _ = place.partition("://")
    return bool(colon) and scheme in OPENERS


def above(place: str) -> str:
    """Return the argument `above` of `errors.known_as` for a local folder or the URL of a store."""
    folder, mark, said = place.partition("?") if is_store_url(place) else (os.path.abspath(place), "", "")
    return f"{folder.rstrip('/')}/{mark}{said}"


def store_behind(url: str) -> str:
    """Return the URL of the store in a URL for git, hg or brz: sftp:// in hpss+sftp://. Refuse the URL of a server."""
    store = url.removeprefix(PREFIX)
    if not is_store_url(store):
        raise CommandError(f"{url} is on a server: run the command there, on the repository's folder")
    return store


def open_store(place: str, flags: Set[str] = frozenset(), *, obeys_preview: bool = False) -> Transport:
    """Return the store in a local folder or at a URL, without a check that it exists. `flags`: the debug flags, besides
    those of the environment, for calls of a vfs:// store, as in `session.client_for`. `obeys_preview`: true for
    commands that hooks run; false for servers, whose clients may be able to write the file of a preview."""
    return _open(place, lambda: lasting_observers(flags), obeys_preview=obeys_preview)


@contextmanager
def store_at(place: str, flags: Set[str]) -> Iterator[Transport]:
    """Open the store of one command. At the end of the block, the trace gets a summary of the store's calls."""
    is_remote = place.startswith(f"{VFS}://")
    with tracing_for(flags) if is_remote else nullcontext(Untraced()) as tracing:
        yield _open(place, lambda: tracing.observers, obeys_preview=True)


def _open(place: str, observers: Callable[[], Sequence[Observer]], *, obeys_preview: bool) -> Transport:
    if not is_store_url(place):
        from smartserver.store.preview_folder import PreviewTransport, is_preview, previewed_by
        from transports.local import LocalTransport

        folder = LocalTransport(place)
        if not (obeys_preview and is_preview(place, os.environ)):
            return _with_logs(folder, place)
        with one_line(place):
            previewed = previewed_by(folder)
        packs = with_copies(open_url(previewed.url), Path(previewed.copies), previewed.size)
        return PreviewTransport(folder, packs)
    try:
        with one_line():
            if place.startswith(f"{VFS}://"):
                from smartserver.client.vfs_transport import from_url  # Imported only if it is used.

                return from_url(place, observers())
            store = open_url(place)
            return _with_logs(store, place) if place.startswith("s3://") else store
    except ValueError as error:
        raise CommandError(str(error)) from None


def with_copies(store: Transport, folder: Path, size: int) -> Transport:
    """Return a remote store with copies of its packs, indexes and checkpoints in a local folder. `size`: the folder's
    maximum in GB."""
    from smartserver.store.format import IMMUTABLE
    from transports.decorators.cached import CachedTransport, CacheFolder

    try:
        return CachedTransport(store, CacheFolder(folder, size * 10**9), IMMUTABLE)
    except OSError as error:
        raise CommandError(f"--cache-dir {folder}: {error.strerror}") from None


def _with_logs(store: Transport, place: str) -> Transport:
    """Return the store, with the logs of its repositories in a database if it belongs to a cluster."""
    found = cluster_of(place, store)
    if found is None:
        return store
    root, path, cluster = found
    library = postgres()
    from smartserver.store.postgres_log import PostgresLog

    logged: Transport = PostgresLog(root, library.Database(cluster.log, cluster.store))
    return logged.child(path) if path else logged


def cluster_of(place: str, store: Transport | None = None) -> tuple[Transport, str, Cluster] | None:
    """Return the cluster that contains a place, as `store.cluster.place_of` does. `store`: the transport of the place.
    For S3 the URL is used instead: its transport has no `whole`, so that no request reads above the served place."""
    from smartserver.store.cluster import place_of

    try:
        with one_line(above(place)):
            if store is not None and not place.startswith("s3://"):
                return place_of(*store.whole())
            parts = urlsplit(place)
            return place_of(open_url(f"s3://{parts.netloc}"), unquote(parts.path).strip("/"))
    except ValueError as error:
        raise CommandError(str(error)) from None


def postgres() -> ModuleType:
    """Return the module that stores logs in PostgreSQL."""
    try:
        from smartserver.store import postgres
    except ModuleNotFoundError:
        raise CommandError("logs in PostgreSQL need psycopg: pip install 'smartserver[postgres]'") from None
    return postgres


def local_place(place: str) -> str:
    """Return the folder that a file:// URL names, and any other place unchanged."""
    if not place.startswith("file://"):
        return place
    from transports.local import folder_of

    try:
        return folder_of(place)
    except ValueError as error:
        raise CommandError(str(error)) from None


def check_folder(path: str) -> None:
    """Check that a path is a folder that can be read."""
    if not os.path.isdir(path):
        raise CommandError(f"{path!r} {'is not a folder' if os.path.exists(path) else 'does not exist'}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise CommandError(f"{path} cannot be read by user {user()}")


def check_meant(place: str) -> None:
    """Refuse a missing folder that is probably a mistake: a folder of another machine in the form of scp (HOST:PATH),
    or one below a `~` that the shell did not expand. An existing folder, or a path that begins with `./`, is
    accepted."""
    first, _, rest = place.partition("/")
    if "://" in place or os.path.lexists(first):
        return
    host, _, path = place.partition(":")
    if ":" in first:
        url = f"sftp://{host}{path if path.startswith('/') else f'/~/{path}'}"
        raise CommandError(f"{place} does not exist: use {url} for a folder of {host}, ./{place} for one here")
    home = os.path.expanduser(first)
    if home != first:
        raise CommandError(f"{place} does not exist: use {home}/{rest} for one below a home, ./{place} for one here")


def call(url: str, flags: Set[str], verb: Verb[RequestT, ResultT], arguments: RequestT) -> ResultT:
    """Call a verb on the repository of a URL and return its result; `flags` as in `session.client_for`."""
    with one_line(url), client_for(url, flags) as (client, location):
        return client.call(verb, arguments, location.path)


def act_as_owner(folder: str) -> None:
    """If root runs this process, become the owner of a folder until the process ends. Otherwise the owner could not
    read the new files."""
    owner = os.stat(folder)
    if os.geteuid() == 0 and owner.st_uid:
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)


@contextmanager
def repository_in(path: str, flags: Set[str] = frozenset(), *, writes: bool = True) -> Iterator[PackRepository]:
    """Open the repository in a folder, at the URL of a store, or in an archive of `dump`. `flags`: as in `open_store`;
    `writes`: as in `copying.repository_at`."""
    from smartserver.store.repository import PackRepository
    from transports.decorators.counted import CountedTransport

    path = local_place(path)
    if os.path.isfile(path):
        from smartserver.cli.archive import archive_in

        with archive_in([path]) as repository:
            yield repository
        return
    if not is_store_url(path):
        check_folder(path)
        if writes:
            act_as_owner(path)
    with store_at(path, flags) as store:
        repository = PackRepository(CountedTransport(store))
        try:
            with one_line(path, above(path)):
                yield repository
        except CommandError as error:
            if isinstance(error.__cause__, NoSuchRepository):
                with one_line(path, above(path)):
                    found = repository.describe_place()
                raise CommandError(
                    f"{path} is not a repository of smartserver" + (f" but {found}" if found else "")
                ) from None
            raise


def count(number: int, what: str) -> str:
    """Return a number with its noun: `1 ref`, `2,000 refs`."""
    return f"{number:,} {what}{'s' * (number != 1)}"
