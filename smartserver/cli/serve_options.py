"""What the options of `smartserver serve` mean, and which of them contradict each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from smartserver.cli.errors import CommandError, UsageConflict
from smartserver.cli.logs import AS_JSON
from smartserver.cli.place import open_store
from smartserver.cli.user import user
from smartserver.client.url import DEFAULT_PORT
from smartserver.errors import Banned
from smartserver.records.faults import Level, Policy
from smartserver.server.rules import is_user_name
from smartserver.verbs.declare import Calls

if TYPE_CHECKING:
    from smartserver.server.memcached import Memcached
    from smartserver.server.tcp import Encryption
    from transports.base import Transport

FOR_TCP = (
    "listen",
    "http",
    "tls",
    "tls_key",
    "require_tls",
    "max_connections",
    "max_per_address",
    "fast_open",
    "metrics",
    "metrics_public",
    "cache_size",
    "workers",
    "shared_cache",
    "memcached",
)
"""Options of `serve` that mean nothing where nobody connects (--stdio)."""

MAX_LEVEL = 19
"""Of zstd, but for levels that need as much memory for each client as all else."""


def parse_listen(text: str, option: str = "--listen", default: int | None = DEFAULT_PORT) -> tuple[str, int]:
    """HOST:PORT, :PORT or [IPV6]:PORT; with a `default` port also HOST."""
    host, colon, port = text.rpartition(":")
    if not colon and text.isascii() and text.isdigit():
        raise CommandError(f"{option} {text!r}: expected HOST:PORT; for that port alone write :{text}")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, str(default)
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise CommandError(f"{option} {text!r}: expected HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


def _given(ctx: click.Context) -> dict[str, str]:
    """The options of the command line, as the user says them, by their names."""
    return {
        parameter.name: parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }


def refuse_cache(ctx: click.Context) -> None:
    """Refuse options of copies, where a folder is served and there is no gateway for stock git."""
    given = _given(ctx)
    if "cache_size" in given:
        raise UsageConflict(f"{given['cache_size']} is for a bucket that is served: s3://bucket/prefix")
    if "cache_dir" in given and not ctx.params["stdio"] and ctx.params["http"] is None:
        raise UsageConflict(f"{given['cache_dir']} is for a bucket that is served (s3://bucket/prefix), or for --http")


def refuse_with_stdio(ctx: click.Context) -> None:
    """Refuse options that `--stdio` cannot obey."""
    given = _given(ctx)
    for name in FOR_TCP:
        if name in given:
            raise UsageConflict(f"{given[name]} is for TCP and has no effect with --stdio: leave it out")
    if (ctx.params["access_log"] or "").removeprefix(AS_JSON) == "-":
        raise UsageConflict("--access-log - is standard output, which is the connection with --stdio: name a file")
    if "allow_vfs" in given and "anonymous" in given:
        why = "anonymous users have file-level (VFS) verbs from this machine only, and a pipe says nothing of that"
        raise UsageConflict(f"--allow-vfs has no effect with --stdio and --anonymous: {why}")


def check_access_options(ctx: click.Context) -> None:
    """Refuse options that mean nothing with `--access`, or without it."""
    options = ctx.params
    if options["key"] is not None and options["name"] is None:
        raise UsageConflict("--key says what the user was known by: give --user NAME too")
    if options["access"] is None:
        if options["name"] is not None:
            raise UsageConflict("--user names a user of an access file: give --access FILE too")
        return
    if options["anonymous"] is not None:
        raise UsageConflict('--anonymous has no effect with --access: give the user "anonymous" a rule there')
    if options["allow_vfs"]:
        raise UsageConflict("--allow-vfs has no effect with --access: file-level (VFS) verbs know no refs")
    if options["name"] is not None and not options["stdio"]:
        raise UsageConflict("--user is for --stdio: over TCP a token says who the user is")
    name = options["name"] or user()
    if options["stdio"] and not is_user_name(name):
        raise UsageConflict(f"--user {name!r}: letters, digits and _.@+- make a name")


def peer_of(user: str, connection: str) -> str:
    """Who is at the other end of standard input. `connection`: SSH_CONNECTION, as sshd sets it (ssh(1)): addresses and
    ports of client and server."""
    words = connection.split()
    if len(words) != 4 or not words[1].isdigit():
        return f"{user} on standard input"
    from smartserver.server.tcp import shown

    return shown(words[0], int(words[1]))


def check_root(root: Path, *, makes: bool) -> None:
    """Accept a folder of this machine, with a line where little can be done there. `makes`: whether clients may make
    repositories there."""
    from smartserver.store.format import recognise

    if not root.is_dir():
        raise CommandError(f"{root} is not a folder: make it first, or name another")
    if not os.access(root, os.R_OK | os.X_OK):
        raise CommandError(f"{root} cannot be read by user {user()}")
    if makes and not os.access(root, os.W_OK):
        click.echo(f"{root} cannot be written to by user {user()}: no repository can be made in it", err=True)
    other = recognise(open_store(str(root)))
    if other is not None:
        wanted = "ROOT is the folder that holds the repositories to serve"
        click.echo(f"{root} is {other}, which is not served: {wanted}", err=True)


def encryption_of(certificate: str | None, key: str | None, *, required: bool) -> Encryption | None:
    """What the options of TLS say; None: no TLS."""
    if certificate is None:
        if required or key is not None:
            raise UsageConflict(f"{'--require-tls' if required else '--tls-key'} needs --tls CERTIFICATE or --tls auto")
        return None
    from smartserver.server.tcp import Encryption  # Loaded late: they cost 100 ms.
    from smartserver.server.tls import BadKeyPair, KeyPair, make_key_pair

    if (certificate == "auto") != (key is None):
        raise UsageConflict("--tls CERTIFICATE needs --tls-key FILE, and --tls auto makes its own")
    try:
        files = make_key_pair(_state_folder(os.environ)) if key is None else (Path(certificate), Path(key))
        return Encryption(KeyPair(*files), required)
    except BadKeyPair as wrong:
        raise CommandError(f"--tls: {wrong}") from None


def metrics_place_of(text: str | None, *, public: bool) -> tuple[str, int] | None:
    """Where to listen for Prometheus; None: nowhere."""
    if text is None:
        if public:
            raise UsageConflict("--metrics-public needs --metrics HOST:PORT")
        return None
    from smartserver.server.tcp import is_loopback

    host, port = parse_listen(text, "--metrics", None)
    if not (public or host == "localhost" or is_loopback(host)):
        why = "other machines reach that address, and nobody is asked who he is"
        raise UsageConflict(f"--metrics {text}: {why}: name one of the loopback, or add --metrics-public")
    return host, port


def _state_folder(environment: Mapping[str, str]) -> Path:
    """Where a server keeps what it made for itself: as systemd says, else as XDG does."""
    state = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    home = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state or os.path.join(home, "smartserver"))


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where a server keeps what it can fetch again: as systemd says, else as XDG does."""
    cache = environment.get("CACHE_DIRECTORY", "").partition(":")[0]
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache or os.path.join(home, "smartserver"), "packs")


def with_copies(store: Transport, folder: Path, size: int) -> Transport:
    """A store behind a link, with copies of its packs, indexes and checkpoints in a folder of this machine. `size`: of
    the folder, in GB."""
    from smartserver.store.format import IMMUTABLE
    from transports.decorators.cached import CachedTransport, CacheFolder

    try:
        return CachedTransport(store, CacheFolder(folder, size * 10**9), IMMUTABLE)
    except OSError as wrong:
        raise CommandError(f"--cache-dir {folder}: {wrong.strerror}") from None


def banned_by(rules: tuple[str, ...]) -> Callable[[str, Calls], Banned | None]:
    """Says which calls are refused."""
    if not rules:
        return lambda path, calls: None
    from smartserver.trace.bans.every import of_calls  # Loaded where something is banned.
    from smartserver.trace.bans.rule import BadRule

    try:
        bans = of_calls(rules)
    except BadRule as wrong:
        raise CommandError(f"--ban: {wrong}") from None

    def banned(path: str, calls: Calls) -> Banned | None:
        return next((Banned(verb, ban.text) for ban in bans if (verb := ban.banned(path, calls))), None)

    return banned


def policy_of(level: str, ignored: tuple[str, ...]) -> Policy:
    """What is done about faults."""
    if not ignored:
        return Policy(Level(level))
    from smartserver.records.system import every_system

    known = sorted({fault for system in every_system().values() for fault in system.faults.severities})
    for fault in ignored:
        if fault not in known:
            raise CommandError(f"--fsck-ignore {fault!r}: no such fault; there are {', '.join(known)}")
    return Policy(Level(level), frozenset(ignored))


def level_of(text: str) -> int | None:
    """The level of zstd that `--compression` names; None: auto."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_LEVEL):
        raise CommandError(f"--compression {text!r}: expected auto, or a level of 0 to {MAX_LEVEL}")
    return int(text)


def memcached_servers(text: str | None) -> list[tuple[str, int]]:
    """The servers that `--memcached` names."""
    return [parse_listen(each, "--memcached", 11211) for each in text.split(",")] if text else []


def open_memcached(servers: list[tuple[str, int]]) -> Memcached | None:
    """A client of these servers. Do not fork after its first request."""
    if not servers:
        return None
    try:
        from smartserver.server.memcached import Memcached
    except ModuleNotFoundError:
        raise CommandError("--memcached needs a library: pip install 'smartserver[memcached]'") from None
    return Memcached(servers)


def memory_of(text: str) -> int | None:
    """The bytes that `--memory-cache-size` names; None: auto."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()):
        raise CommandError(f"--memory-cache-size {text!r}: expected auto, or a number of megabytes")
    return int(text) << 20
