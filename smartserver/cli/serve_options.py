"""The options of `smartserver serve`: their groups, their values, and the contradictions between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smartserver.cli.config_file import given
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
    from smartserver.gateway.git_command import GitCommand
    from smartserver.server.memcached import Memcached
    from smartserver.server.rules import AccessFile
    from smartserver.server.tcp import Encryption
    from smartserver.server.tokens import TokenFile

GROUPS = {
    "Where it serves": ("listen", "http", "tls", "tls_key", "require_tls", "stdio"),
    "Users and their rights": ("anonymous", "access", "name", "key", "no_create", "allow_vfs"),
    "Logs and metrics": ("log_place", "access_log", "slow", "verbose", "metrics", "metrics_public"),
    "Refusals and limits": (
        "fsck", "ignored", "rules", "max_connections", "max_per_address", "idle_timeout",
    ),
    "Caches and processes (rarely needed: keep them in a file for --config)": (
        "workers", "shared_cache", "memory_cache_size", "cache_dir", "cache_size", "git_cache_size", "memcached",
        "compression", "fast_open",
    ),
}  # fmt: skip
"""The groups of options in the help, by title. Options without a group are in a final group."""

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
"""The options of `serve` that have no effect without a listening socket (--stdio)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options as click parsed them, by the names of their parameters."""

    root: str
    listen: str
    http: str | None
    tls: str | None
    tls_key: str | None
    require_tls: bool
    stdio: bool
    anonymous: str | None
    access: str | None
    name: str | None
    key: str | None
    no_create: bool
    allow_vfs: bool
    max_connections: int
    max_per_address: int
    idle_timeout: int
    rules: tuple[str, ...]
    fsck: str
    ignored: tuple[str, ...]
    fast_open: bool
    log_place: str | None
    access_log: str | None
    metrics: str | None
    metrics_public: bool
    memory_cache_size: str
    cache_dir: Path | None
    cache_size: int
    git_cache_size: int | None
    workers: int
    memcached: str | None
    shared_cache: int
    compression: str
    slow: int | None
    verbose: bool


@dataclass(slots=True, kw_only=True)
class CheckedOptions:
    """The values of options whose check needs more than their type."""

    root: str
    is_bucket: bool
    """True if `root` is a bucket, which other servers may serve too."""
    is_remote: bool
    """True if `root` is on another machine, and served to one user."""
    rules: AccessFile | None
    tokens: TokenFile | None
    listen: tuple[str, int]
    http: tuple[str, int] | None
    git_cache_size: int | None
    """The size in bytes; None means no limit."""
    asked: GitCommand | None
    """The git command that the client requested over ssh; None if the client speaks hpss."""
    metrics: tuple[str, int] | None
    encryption: Encryption | None
    banned: Callable[[str, Calls], Banned | None]
    policy: Policy
    level: int | None
    memcached: list[tuple[str, int]]
    memory: int | None


MAX_LEVEL = 19
"""The highest level of zstd that is accepted. Higher levels double the memory for each client."""


def parse_listen(text: str, option: str = "--listen", default: int | None = DEFAULT_PORT) -> tuple[str, int]:
    """Return host and port of HOST:PORT, :PORT or [IPV6]:PORT; with a `default` port also of HOST."""
    host, colon, port = text.rpartition(":")
    if not colon and text.isascii() and text.isdigit():
        raise CommandError(f"{option} {text!r}: expected HOST:PORT; for that port alone write :{text}")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, str(default)
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise CommandError(f"{option} {text!r}: expected HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


def refuse_cache(ctx: click.Context) -> None:
    """Refuse the options of caches if a folder is served and there is no gateway for stock git."""
    found = given(ctx)
    if "cache_size" in found:
        raise UsageConflict(f"{found['cache_size']} is for a bucket that is served: s3://bucket/prefix")
    if "cache_dir" in found and not ctx.params["stdio"] and ctx.params["http"] is None:
        raise UsageConflict(f"{found['cache_dir']} is for a bucket that is served (s3://bucket/prefix), or for --http")


def git_cache_size_of(gigabytes: int | None, ctx: click.Context) -> int | None:
    """Return the bytes that `--git-cache-size` names; None means no limit."""
    if gigabytes is None:
        return None
    if not ctx.params["stdio"] and ctx.params["http"] is None:
        raise UsageConflict("--git-cache-size needs --http HOST:PORT, or --stdio")
    return gigabytes * 10**9


def refuse_with_stdio(ctx: click.Context) -> None:
    """Refuse options that `--stdio` cannot obey."""
    found = given(ctx)
    for name in FOR_TCP:
        if name in found:
            raise UsageConflict(f"{found[name]} is for TCP and has no effect with --stdio: leave it out")
    if (ctx.params["access_log"] or "").removeprefix(AS_JSON) == "-":
        raise UsageConflict("--access-log - is standard output, which is the connection with --stdio: name a file")
    if "allow_vfs" in found and "anonymous" in found:
        why = "anonymous users get file-level (VFS) verbs only from this machine, and a pipe does not say from where"
        raise UsageConflict(f"--allow-vfs has no effect with --stdio and --anonymous: {why}")


def check_access_options(ctx: click.Context) -> None:
    """Refuse options that have no effect with `--access`, or without it."""
    options = ctx.params
    if options["key"] is not None and options["name"] is None:
        raise UsageConflict("--key needs --user NAME: it is a key of that user")
    if options["access"] is None:
        if options["name"] is not None:
            raise UsageConflict("--user names a user of an access file: give --access FILE too")
        return
    if options["anonymous"] is not None:
        raise UsageConflict('--anonymous has no effect with --access: give the user "anonymous" a rule there')
    if options["allow_vfs"]:
        raise UsageConflict("--allow-vfs cannot be used with --access: file-level (VFS) verbs bypass rules about refs")
    if options["name"] is not None and not options["stdio"]:
        raise UsageConflict("--user is for --stdio: over TCP a token says who the user is")
    name = options["name"] or user()
    if options["stdio"] and not is_user_name(name):
        raise UsageConflict(f"--user {name!r}: use letters, digits and _.@+-")


def peer_of(user: str, connection: str) -> str:
    """Return the name of the client on standard input, for the log. `connection`: SSH_CONNECTION, which sshd sets to
    the addresses and ports of client and server (ssh(1))."""
    words = connection.split()
    if len(words) != 4 or not words[1].isdigit():
        return f"{user} on standard input"
    from smartserver.server.tcp import shown

    return shown(words[0], int(words[1]))


def check_root(root: Path, *, makes: bool) -> None:
    """Check that a folder can be served, and print a warning if it is not writable or is itself a repository. `makes`:
    True if clients may create repositories there."""
    from smartserver.store.format import recognise

    if not root.is_dir():
        raise CommandError(f"{root} is not a folder: create it, or give another")
    if not os.access(root, os.R_OK | os.X_OK):
        raise CommandError(f"{root} cannot be read by user {user()}")
    if makes and not os.access(root, os.W_OK):
        click.echo(f"{root} cannot be written to by user {user()}: no repository can be made in it", err=True)
    other = recognise(open_store(str(root)))
    if other is not None:
        wanted = "ROOT is the folder that holds the repositories to serve"
        click.echo(f"{root} is {other}, which is not served: {wanted}", err=True)


def hook_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a hook: the server's, with its own `smartserver` first on PATH and without an agent."""
    own = os.path.dirname(sys.executable)
    return {**environ, "PATH": os.pathsep.join([own, environ.get("PATH", os.defpath)]), "SMARTSERVER_AGENT": "0"}


def encryption_of(certificate: str | None, key: str | None, *, required: bool) -> Encryption | None:
    """Return the encryption that the options of TLS describe; None means no TLS."""
    if certificate is None:
        if required or key is not None:
            raise UsageConflict(f"{'--require-tls' if required else '--tls-key'} needs --tls CERTIFICATE or --tls auto")
        return None
    from smartserver.server.tcp import Encryption  # Imported late: both take 100 ms.
    from smartserver.server.tls import BadKeyPair, KeyPair, make_key_pair

    if (certificate == "auto") != (key is None):
        raise UsageConflict("--tls CERTIFICATE needs --tls-key FILE, and --tls auto makes its own")
    try:
        files = make_key_pair(state_folder(os.environ)) if key is None else (Path(certificate), Path(key))
        return Encryption(KeyPair(*files), required)
    except BadKeyPair as error:
        raise CommandError(f"--tls: {error}") from None


def metrics_place_of(text: str | None, *, public: bool) -> tuple[str, int] | None:
    """Return the host and port on which metrics are served; None means no metrics."""
    if text is None:
        if public:
            raise UsageConflict("--metrics-public needs --metrics HOST:PORT")
        return None
    from smartserver.server.tcp import is_loopback

    host, port = parse_listen(text, "--metrics", None)
    if not (public or host == "localhost" or is_loopback(host)):
        why = "other machines can connect to that address without a log-in"
        raise UsageConflict(f"--metrics {text}: {why}: use an address of the loopback, or add --metrics-public")
    return host, port


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for a server's own state: systemd's, else that of XDG."""
    state = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    home = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state or os.path.join(home, "smartserver"))


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for copies that a server can fetch again: systemd's, else that of XDG."""
    cache = environment.get("CACHE_DIRECTORY", "").partition(":")[0]
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache or os.path.join(home, "smartserver"), "packs")


def banned_by(rules: tuple[str, ...]) -> Callable[[str, Calls], Banned | None]:
    """Return a function that returns the first banned call of a request, or None."""
    if not rules:
        return lambda path, calls: None
    from smartserver.trace.bans.every import of_calls  # Imported only if a call is banned.
    from smartserver.trace.bans.rule import BadRule

    try:
        bans = of_calls(rules)
    except BadRule as error:
        raise CommandError(f"--ban: {error}") from None

    def banned(path: str, calls: Calls) -> Banned | None:
        return next((Banned(verb, ban.text) for ban in bans if (verb := ban.banned(path, calls))), None)

    return banned


def policy_of(level: str, ignored: tuple[str, ...]) -> Policy:
    """Return the policy for faults of objects. `ignored`: the faults that are accepted without a warning."""
    if not ignored:
        return Policy(Level(level))
    from smartserver.records.system import every_system

    known = sorted({fault for system in every_system().values() for fault in system.faults.severities})
    for fault in ignored:
        if fault not in known:
            raise CommandError(f"--fsck-ignore {fault!r}: no such fault; there are {', '.join(known)}")
    return Policy(Level(level), frozenset(ignored))


def level_of(text: str) -> int | None:
    """Return the level of zstd that `--compression` names; None means auto."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_LEVEL):
        raise CommandError(f"--compression {text!r}: expected auto, or a level of 0 to {MAX_LEVEL}")
    return int(text)


def memcached_servers(text: str | None) -> list[tuple[str, int]]:
    """Return the servers that `--memcached` names."""
    return [parse_listen(each, "--memcached", 11211) for each in text.split(",")] if text else []


def open_memcached(servers: list[tuple[str, int]]) -> Memcached | None:
    """Return a client of these servers; None without servers. Do not fork after its first request."""
    if not servers:
        return None
    try:
        from smartserver.server.memcached import Memcached
    except ModuleNotFoundError:
        raise CommandError("--memcached needs a library: pip install 'smartserver[memcached]'") from None
    return Memcached(servers)


def memory_of(text: str) -> int | None:
    """Return the bytes that `--memory-cache-size` names; None means auto."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()):
        raise CommandError(f"--memory-cache-size {text!r}: expected auto, or a number of megabytes")
    return int(text) << 20
