"""The URLs of hpss: the place that each names, and the medium by which the place is reached. Modules for other schemes
than hpss:// are imported when a URL needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from smartserver.client.media.tcp import TcpMedium
from smartserver.client.url import PLAIN, TLS, TcpLocation, parse
from smartserver.errors import CorruptFile, known_as
from smartserver.programs import foreign_environment

if TYPE_CHECKING:
    from smartserver.client.medium import Medium
    from smartserver.client.ssh_url import SshLocation
    from smartserver.client.store_url import StoreLocation
    from smartserver.client.tls_url import TlsLocation

    Place = TcpLocation | TlsLocation | SshLocation | StoreLocation

OF_BUCKETS = "hpss+s3"
OF_STORES = ("hpss+sftp", OF_BUCKETS, "hpss+vfs")
"""The schemes of repositories whose files a local process reads and writes (`store_url`)."""

SCHEMES = (PLAIN, TLS, "hpss+ssh", *OF_STORES)
"""All URL schemes of hpss. For each, some tools have a program that is named after it."""


def is_ours(url: str) -> bool:
    """Tell whether a URL has one of the schemes of hpss."""
    scheme, colon, _ = url.partition("://")
    return bool(colon) and scheme.lower() in SCHEMES


def parse_place(url: str) -> Place:
    """Parse an hpss URL.

    Raises:
        BadUrl: the URL has another scheme, or is malformed.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "hpss+ssh":
        from smartserver.client.ssh_url import parse_ssh

        return parse_ssh(url)
    if scheme == TLS:
        from smartserver.client.tls_url import parse_tls

        return parse_tls(url)
    if scheme in OF_STORES:
        from smartserver.client.store_url import parse_store

        return parse_store(url)
    return parse(url)


ADVICE = "(tell its server's administrator: `smartserver verify` lists all damage, and a backup repairs it)"
"""Advice for damage that the client cannot repair."""


def damage_in_words(place: Place, error: CorruptFile) -> str:
    """Return the message for a user about a damaged file of the repository at a place."""
    path = path_in_words(place)
    repository = f"the repository {path!r}" if path else "the repository at the server's root"
    return f"{repository} is damaged: {error.path} at byte {error.offset}: {error.why} {ADVICE}"


def path_in_words(place: Place) -> str:
    """Return the path of a place in the form that messages use."""
    return known_as(place.above, place.path)


def served_by(place: Place) -> str:
    """Return the URL of the whole served folder of the place's server, in its canonical spelling."""
    return place.key.removesuffix(place.path)


def how_to_serve(place: Place, push: str) -> str:
    """Return the part of a message which says that a place is not served, and how to serve it. `push`: the command that
    would create a repository from the place."""
    return f"which is not served: to have it served, run `{push} {served_by(place)}ANOTHER-PATH` in it"


def behind(place: Place) -> str:
    """Return the URL of the store whose files a local server process reads and writes for a place; empty if the client
    connects to a server instead."""
    return place.above if place.key.startswith(tuple(f"{scheme}://" for scheme in OF_STORES)) else ""


def is_holdable(place: Place) -> bool:
    """Tell whether a connection may be held for later commands. A process that reads files by SFTP or from another
    server must not be held, because it ends with its command."""
    return not behind(place) or place.key.startswith(f"{OF_BUCKETS}://")


def of_buckets(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the environment variables that may decide the bucket and its user: those of proxies, and all
    of AWS's, because the library reads them. `environment`: by default that of this process."""
    return [
        name
        for name in sorted(foreign_environment(environment))
        if name.startswith("AWS_") or name.lower().endswith("_proxy")
    ]


def login_of(place: Place, environment: Mapping[str, str], ssh: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return the words of the command that logs in at a place, the trust settings of TLS, or the variables of a bucket.

    The variable SMARTSERVER_SSH names the program that logs in; without it `ssh` gives the words.
    """
    if isinstance(place, TcpLocation) or behind(place):
        is_bucket = place.key.startswith(f"{OF_BUCKETS}://")
        return [f"{name}={environment[name]}" for name in of_buckets(environment)] if is_bucket else ()
    from smartserver.client.tls_url import TlsLocation

    if isinstance(place, TlsLocation):
        from smartserver.client.trust import trust_of

        return trust_of(place, environment)
    program = environment.get("SMARTSERVER_SSH")
    return (program,) if program else ssh()


def connect(
    place: Place, login: Sequence[str], *, fast_open: bool = False, flags: Iterable[str] = (), lends: bool = False
) -> Medium:
    """Connect to a place. `login`: the result of `login_of`. `fast_open`: as in `TcpMedium`. `flags`: the flags of `-D`
    for a server process that is started on this machine. `lends`: True if another process may use the connection when
    this process ends.

    Raises:
        CannotConnect: no server answers.
    """
    if isinstance(place, TcpLocation):
        return TcpMedium(place.host, place.port, fast_open=fast_open)
    from smartserver.client.tls_url import TlsLocation

    if isinstance(place, TlsLocation):
        return _over_tls(place, login, lends=lends)
    from smartserver.client.media.pipe import PipeMedium
    from smartserver.client.ssh_url import SshLocation

    if isinstance(place, SshLocation):
        return PipeMedium(place.command(login), where=place.where, passes_on=lends)
    return PipeMedium(place.command(flags), where=place.where, quotes=True)


def _over_tls(place: TlsLocation, login: Sequence[str], *, lends: bool) -> Medium:
    """Connect with TLS in this process, or with `lends` in a relay process that outlives it."""
    from smartserver.client.trust import Trust

    trust = Trust(*login)
    if lends:
        from smartserver.client.media.pipe import PipeMedium
        from smartserver.client.media.tls_relay import command

        return PipeMedium(command(place.host, place.port, trust), where=place.where, quotes=True, waits=True)
    from smartserver.client.media.tls import TlsMedium

    return TlsMedium(place.host, place.port, trust)
