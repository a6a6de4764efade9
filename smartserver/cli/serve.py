"""`smartserver serve`: serve the repositories below a folder, of this machine or of another."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shlex
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from smartserver.cli.access import is_shared, open_access, open_tokens
from smartserver.cli.errors import CommandError, UsageConflict, one_line
from smartserver.cli.interrupts import on_ending
from smartserver.cli.logs import is_journal, log_requests_to, log_to
from smartserver.cli.place import above, is_store_url, near, open_store
from smartserver.cli.process import raise_descriptors, use_one_heap
from smartserver.cli.serve_gateway import git_folder, http_place_of, listen_for_git, serve_git
from smartserver.cli.serve_options import (
    banned_by,
    cache_folder,
    check_access_options,
    check_root,
    encryption_of,
    level_of,
    memcached_servers,
    memory_of,
    metrics_place_of,
    open_memcached,
    parse_listen,
    peer_of,
    policy_of,
    refuse_cache,
    refuse_with_stdio,
    with_copies,
)
from smartserver.cli.user import user
from smartserver.cli.workers import STOP, TERMINATE, fork_workers
from smartserver.client.url import DEFAULT_PORT
from smartserver.gateway.git_command import git_command
from smartserver.records import native
from smartserver.records.faults import Level
from smartserver.server.limits import MAX_CONNECTIONS, MAX_OF_ADDRESS, Limits
from smartserver.wire.limits import STALL_TIMEOUT

if TYPE_CHECKING:
    from types import ModuleType

    from twisted.logger import ILogObserver

    from smartserver.server.cache_sizes import AutoSize
    from smartserver.server.common_counts import CommonCounts
    from smartserver.server.connections import Connections
    from smartserver.server.pages import Page
    from smartserver.server.request_meters import ServerCounts
    from smartserver.server.site import Site
    from smartserver.server.startup import Reactor

STOP_AFTER = 30.0
"""Seconds a server that was told to stop lets open requests finish."""

NOTICE = 5.0
"""Seconds for which a server that is told to stop by SIGTERM still accepts connections, where `/readyz` says so: a load
balancer that asks each second has left it by then."""

NO_METRICS = "no /metrics: pip install 'smartserver[metrics]'"

EVERYWHERE = ("0.0.0.0", "::")
"""Where a server that listens is met at every address."""


@click.command(short_help="Serve the repositories below a folder over hpss://.")
@click.argument("root")
@click.option(
    "--listen",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve git repositories to stock git there, too: git clone http://HOST:PORT/PATH, with --tls https://. Users "
    "are known by a token as the password. --cache-dir has what git reads.",
)
@click.option(
    "--tls",
    metavar="CERTIFICATE|auto",
    help="Offer TLS on the same port (hpss+tls://): a PEM file with the certificate and its chain, read again when it "
    "changes; auto makes a self-signed one, once, and prints its fingerprint for `smartserver trust`.",
)
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, in PEM form without a passphrase.")
@click.option("--require-tls", is_flag=True, help="Refuse clients without TLS.")
@click.option("--stdio", is_flag=True, help="Serve one client on standard input and output, as the invoking user.")
@click.option(
    "--anonymous",
    type=click.Choice(["none", "read", "write"]),
    show_default="read; with --stdio: all that the invoking user may do",
    help="What users may do. Over TCP force and delete are for clients on this machine only, with --stdio for none.",
)
@click.option(
    "--access",
    metavar="FILE|STORE",
    help="Who may do what: a TOML file of rules by user, path and ref, read again when it changes. See `smartserver "
    "access --help`. Over TCP a token says who a user is: `smartserver token --help`. STORE: rules and tokens of its "
    "database (`smartserver cluster access --help`).",
)
@click.option(
    "--user",
    "name",
    metavar="NAME",
    help="With --stdio and --access: who the client is, as the forced command of a key says it.",
)
@click.option(
    "--key",
    metavar="FINGERPRINT",
    help="With --user: the key that says so, for the log of changes. "
    "It must still be one of the user's in the access file.",
)
@click.option("--no-create", is_flag=True, help="Make no new repositories.")
@click.option(
    "--folder-locks",
    is_flag=True,
    hidden=True,
    help="Of earlier releases; without effect.",
)
@click.option(
    "--allow-vfs",
    is_flag=True,
    help="Let clients read and write files below ROOT (vfs://), anonymous ones from this machine only.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=MAX_CONNECTIONS,
    show_default=True,
    metavar="N",
    help="Connections over TCP at a time; one more takes the place of one that is idle, or is refused with a line.",
)
@click.option(
    "--max-per-address",
    type=click.IntRange(1),
    default=MAX_OF_ADDRESS,
    show_default=True,
    metavar="N",
    help="Of these, from one address (IPv6: one /64). This machine's own are not counted.",
)
@click.option(
    "--idle-timeout",
    type=click.IntRange(1),
    default=int(STALL_TIMEOUT),
    show_default=True,
    metavar="SECONDS",
    help="How long a client in the middle of a push or clone may neither send nor read a byte, and one that has just "
    "connected may make no request.",
)
@click.option(
    "--ban",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Refuse the calls that a rule names (SIDE:VERB[:PATH]), as rpc:Repository.pack or vfs:*:*/log/*; may be "
    "repeated. Behaviours (silly, per-item...) are a client's, and banned there: -Dhpss-ban.",
)
@click.option(
    "--fsck",
    type=click.Choice([level.value for level in Level]),
    default=Level.SAFE.value,
    show_default=True,
    help="Which faults of new git objects refuse a push: none, those that harm clients, or all that git fsck --strict "
    "refuses. The others are taken with a warning.",
)
@click.option(
    "--fsck-ignore",
    "ignored",
    multiple=True,
    metavar="ID",
    help="Take objects with this fault without a word; ID as git fsck says it, as hasDotgit; may be repeated.",
)
@click.option("--fast-open", is_flag=True, help="Let clients that ask for it save the handshake (TCP Fast Open).")
@click.option(
    "--log",
    "log_place",
    metavar="FILE|syslog",
    help="Write the log there and not to standard error, and with it a line for each change (syslog reaches the "
    "journal).",
)
@click.option(
    "--access-log",
    metavar="[json:]FILE|-",
    help="Write a line for each request there (-: standard output): its user, verbs, path, bytes, times and outcome.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve the server's counters to Prometheus there, at /metrics, and to a load balancer whether it is ready, at "
    "/readyz: an address of this machine's loopback.",
)
@click.option("--metrics-public", is_flag=True, help="Let --metrics have any address: who reaches it may read it.")
@click.option(
    "--memory-cache-size",
    default="auto",
    show_default=True,
    metavar="MB|auto",
    help="Memory for caches: texts of files, blocks of indexes, headers of revisions. auto: 128 MB, and more where a "
    "larger cache would have found more, up to a quarter of the machine's free memory. `smartserver tune` shows that.",
)
@click.option(
    "--cache-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where packs of a bucket are kept, and what stock git reads (--http, ssh); all of it can be fetched again. By "
    "default a folder of the user's cache.",
)
@click.option(
    "--cache-size",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="GB",
    help="What --cache-dir may take.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that serve; each keeps one core busy at most. Each has its own caches and its own limits of "
    "connections, as large as the options say, and --shared-cache besides.",
)
@click.option(
    "--memcached",
    metavar="HOST[:PORT][,...]",
    help="memcached servers (port 11211) for texts of files, which are checked before they are used. Anybody who can "
    "connect to them can read the texts. It pays where the store is slower than the network: see "
    "doc/explanation/caches.md.",
)
@click.option(
    "--shared-cache",
    type=click.IntRange(0),
    default=64,
    show_default=True,
    metavar="MB",
    help="With --workers: memory in which each worker finds the texts of files and the blocks of logs that another one "
    "has decoded; a worker that takes the place of another finds them, too. 0: none.",
)
@click.option(
    "--compression",
    default="auto",
    show_default=True,
    metavar="0..19|auto",
    help="How hard trees and logs are compressed (zstd's level; 0: not). auto: 3, but 0 for clients on this machine, "
    "also at the other end of a tunnel. History is compressed already, and sent as it is stored.",
)
@click.option(
    "--slow",
    type=click.IntRange(min=0),
    metavar="MILLISECONDS",
    help="Log each request that takes so long, with what the time went to: waiting for a thread, the disk.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every request, and connections that are no client's.")
@click.pass_context
def command(
    ctx: click.Context,
    root: str,
    listen: str,
    http: str | None,
    tls: str | None,
    tls_key: str | None,
    require_tls: bool,
    stdio: bool,
    anonymous: str | None,
    access: str | None,
    name: str | None,
    key: str | None,
    no_create: bool,
    folder_locks: bool,
    allow_vfs: bool,
    max_connections: int,
    max_per_address: int,
    idle_timeout: int,
    rules: tuple[str, ...],
    fsck: str,
    ignored: tuple[str, ...],
    fast_open: bool,
    log_place: str | None,
    access_log: str | None,
    metrics: str | None,
    metrics_public: bool,
    memory_cache_size: str,
    cache_dir: Path | None,
    cache_size: int,
    workers: int,
    memcached: str | None,
    shared_cache: int,
    compression: str,
    slow: int | None,
    verbose: bool,
) -> None:
    """Serve the repositories below the folder ROOT over hpss://; one that is ROOT itself has the empty path.

    ROOT may be a bucket (s3://bucket/prefix), which any number of servers serve at once: each keeps copies of packs in
    --cache-dir, and nothing else. See `smartserver cluster --help` for logs in a database.

    With --stdio ROOT may be the URL of a folder on a machine that runs nothing of ours (sftp://[user@]host/path, with
    /~/ for the home there), of a bucket, or of a server that gives its files (vfs://host/path): git, brz and hg start
    that themselves for hpss+sftp://, hpss+s3:// and hpss+vfs:// URLs. As the forced command of a key it serves ROOT
    alone: a client names a place in it after /~/.

    It runs until it gets SIGTERM, SIGINT (^C) or SIGHUP, then takes no more requests and gives open ones 30 seconds.
    With --metrics and SIGTERM it is not ready for 5 seconds before that.
    What it says goes to standard error, or where --log says: where it serves, refused and stalled clients, and
    whatever needs attention (a full disk, ...), no more than ten lines of a kind a minute. With --access or --log it
    also has a line for each change of a ref.

    \b
    smartserver serve ~/repositories
    smartserver serve /srv/code --listen 0.0.0.0:4155 --anonymous read
    smartserver serve ~/repositories --anonymous write --no-create
    smartserver serve /srv/code --listen 0.0.0.0:4155 --access /etc/smartserver/access.toml
    smartserver serve /srv/code --listen 0.0.0.0:4155 --tls /etc/ssl/code.pem --tls-key /etc/ssl/code.key
    smartserver serve /srv/code --listen 0.0.0.0:4155 --tls auto --require-tls
    smartserver serve s3://bucket/code --cache-dir /var/cache/smartserver --cache-size 50
    ssh host smartserver serve /srv/code --stdio
    smartserver serve sftp://me@example.org/srv/code --stdio
    """
    asked = None
    if stdio:
        refuse_with_stdio(ctx)
        asked = git_command(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    check_access_options(ctx)
    if folder_locks:
        click.echo("--folder-locks has no effect: there are no locks any more", err=True)
    log_to(log_place, verbose, journal=is_journal(2, os.environ), audits=bool(access or log_place))
    if access_log is not None:
        log_requests_to(access_log)
    file, tokens = None, None
    if access is not None and not is_shared(access):
        file, tokens = open_access(access), None if stdio else open_tokens(access)
    root = near(root)
    is_bucket = root.startswith("s3://") and not stdio
    remote = is_store_url(root) and not is_bucket
    if not is_bucket:
        refuse_cache(ctx)
    if remote and not stdio:
        raise CommandError(f"{root} is behind a link, and is served with --stdio only")
    if not is_store_url(root):
        if stdio:
            _check_asked(root, os.environ.get("SSH_ORIGINAL_COMMAND", ""))
        # Nobody needs to be told that /home or /srv, which hpss+ssh:// names, cannot be written to.
        may_write = anonymous == "write" or (stdio and anonymous is None and Path(root).resolve().parent.name != "")
        check_root(Path(root), makes=may_write and not no_create)
    host, port = ("", 0) if stdio else parse_listen(listen)
    metrics_place = metrics_place_of(metrics, public=metrics_public)
    http_place = http_place_of(http)
    encryption = encryption_of(tls, tls_key, required=require_tls)
    banned = banned_by(rules)
    policy = policy_of(fsck, ignored)
    level = level_of(compression)
    servers = memcached_servers(memcached)
    memory = memory_of(memory_cache_size)

    if encryption is None:
        # Twisted loads OpenSSL with the reactor wherever it is installed: 65 ms of each login by ssh.
        sys.modules.setdefault("twisted.internet._newtls", cast("ModuleType", None))
    # Loaded late: the reactor costs 150 ms, which a mistyped option should not.
    from twisted.internet import error
    from twisted.logger import globalLogPublisher

    from smartserver.server import stdio as stdio_shell
    from smartserver.server import tcp
    from smartserver.server.access import Anonymous, RuledUser, by_token, on_streams
    from smartserver.server.cache_sizes import EVERY, START, AutoSize, divide, follow
    from smartserver.server.connections import Connections
    from smartserver.server.executor import Lane
    from smartserver.server.health import Health, look_at
    from smartserver.server.open_files import MAX_OF_SITE, SHARE, OpenFiles
    from smartserver.server.pages import PagesFactory
    from smartserver.server.site import Site
    from smartserver.server.startup import inside_of, tidy_all
    from smartserver.server.threads import ThreadExecutor
    from smartserver.store.caches import HEADERS
    from smartserver.store.cluster import mark_of

    if not stdio:
        _load_readers()
    use_one_heap()
    descriptors = raise_descriptors()
    opened = None if stdio else ctx.with_resource(_open_port(host, port))
    git_port = None if http_place is None or stdio else ctx.with_resource(_open_port(*http_place))
    pages_port = None if metrics_place is None or stdio else ctx.with_resource(_open_port(*metrics_place))
    # All is loaded that processes can share: the reactor is not.
    is_first, common, counts = True, None, None
    if opened is not None and workers > 1:
        from smartserver.server.common_cache import CommonCache  # A log-in by ssh does not wait for them.
        from smartserver.server.common_counts import CommonCounts

        common = CommonCache(shared_cache << 20, workers) if shared_cache else None
        counts = CommonCounts(workers)
        ports = [each for each in (opened, git_port, pages_port) if each is not None]
        number, is_first = fork_workers(workers, ports)
        counts.belong_to(number)
        if common is not None:
            common.belong_to(number)
    transport = open_store(root, ctx.obj or frozenset())  # What has used a bucket may not fork.
    if access is not None and is_shared(access):
        file, tokens = open_access(access), None if stdio else open_tokens(access)
    if is_bucket:
        transport = with_copies(transport, cache_dir or cache_folder(os.environ), cache_size)
    from twisted.internet import reactor as untyped

    reactor = cast("Reactor", untyped)
    site = Site(
        transport,
        may_create=not no_create,
        allows_vfs=allow_vfs,
        banned=banned,
        policy=policy,
        compression=level,
        slow=None if slow is None else slow / 1000,
    )
    site.texts.common = HEADERS.common = common
    if memory is not None or stdio:  # One client's session is too short to choose by.
        divide(site.texts, START if memory is None else memory)
    if memory is not None:
        follow(site.texts)
    elif not stdio:
        auto = AutoSize(site.texts, workers)
        reactor.callLater(EVERY, partial(_decide, auto, reactor))
    site.texts.remote = remote_texts = open_memcached(servers)
    site.open_files = OpenFiles(min(MAX_OF_SITE, descriptors // SHARE))
    if remote:
        site.name, site.tidies = root, False
        logging.getLogger("smartserver").setLevel(logging.INFO if verbose else logging.ERROR)  # Its one user is told.
    else:  # Who is let into a store has an account there: no link leads him where he may not go.
        site.inside = inside_of(transport)
    executor = ThreadExecutor(reactor.callFromThread)
    connections = Connections(site, executor, reactor, Limits(max_connections, max_per_address, idle_timeout))
    with one_line(above(root)):
        mark = None if metrics_place is None else mark_of(transport)
    health = Health(lambda: look_at(transport, mark), executor, reactor)

    def stop() -> None:
        with contextlib.suppress(error.ReactorNotRunning):  # A signal came first.
            reactor.stop()

    def tidied() -> None:
        """Stop once what a push left to tidy is done, however soon after its answer the client went: no later process
        would do it where each serves one client."""
        executor.stopping = True
        executor.run(lambda: None, lambda _: stop(), Lane.UPKEEP)

    told: list[bool] = []

    def after_notice() -> None:
        if not told:
            again(signal.SIGTERM)

    def again(number: int) -> None:
        """A signal came: the first one stops, the next one waits no longer. Behind a link there is one user, whose own
        command the first one ends, too: what he asked is given up, as far as it is not done."""
        if told and number == signal.SIGHUP:
            return  # The end of a terminal sends it, and its shell once more.
        if number == signal.SIGTERM and metrics_place is not None and not health.is_stopping:
            health.is_stopping = True
            _tell(f"stopping: connections are accepted for another {NOTICE:.0f} s, and /readyz says no")
            reactor.callLater(NOTICE, after_notice)
            return
        health.is_stopping = True
        if told:
            connections.cut()
        elif remote and session in connections.open:
            session.abort()
        told.append(True)
        stop()

    def stopping() -> object:
        if connections.busy:
            grace = f"{STOP_AFTER:.0f} s to finish what was asked (a second signal ends it now)"
            _tell(f"stopping: {_connections(connections.busy)} {grace}")
        return connections.stop(STOP_AFTER)

    if opened is None:
        if log_place is None:  # Standard error is the user's: it is told.
            logging.getLogger("smartserver.refusals").setLevel(logging.ERROR)
        who = name or user()
        policy_of_streams = Anonymous(anonymous) if anonymous else None
        admission = on_streams(who, policy_of_streams) if file is None else RuledUser(who, file, key or "")
        if asked is not None:
            peer = peer_of(who, os.environ.get("SSH_CONNECTION", ""))
            folder = git_folder(cache_dir, os.environ)
            ctx.exit(serve_git(site, asked, admission, peer, folder, os.environ))
        session = stdio_shell.serve(connections, admission, peer_of(who, os.environ.get("SSH_CONNECTION", "")))
        session.when_lost = tidied
    else:
        permitted = Anonymous(anonymous or "read")
        by_address = tcp.anonymous_by_address(permitted)
        admit = by_address if file is None or tokens is None else by_token(file, tokens)
        listening = tcp.accept(reactor, opened, tcp.TcpFactory(connections, admit, encryption))
        gateway = None
        if git_port is not None:
            users = None if file is None or tokens is None else (file, tokens)
            gateway = listen_for_git(
                git_port,
                connections,
                reactor,
                folder=git_folder(cache_dir, os.environ),
                access=users,
                anonymous=permitted,
                encryption=encryption,
                is_first=is_first,
            )
            reactor.addSystemEventTrigger("before", "shutdown", gateway.stopListening)
        counters = None
        if metrics_place is not None:
            pages = health.pages | _metrics(site, connections, counts, reactor)
            counters = tcp.accept(reactor, cast("socket.socket", pages_port), PagesFactory(pages, reactor))
        globalLogPublisher.addObserver(cast("ILogObserver", tcp.log_unaccepted))
        unopened = tcp.fast_open(listening) if fast_open else ""
        if unopened and is_first:
            click.echo(f"--fast-open has no effect: {unopened}", err=True)
        actual = listening.getHost().port
        everywhere = ", every address of this machine" if host in EVERYWHERE else ""
        whom = f"anonymous users: {permitted}" if access is None else f"access: {access}"
        scheme = "hpss+tls" if require_tls else "hpss"
        serving = f"serving {root} on {scheme}://{tcp.shown(host, actual)}/{everywhere} ({whom})"
        if encryption is not None:
            serving += f"\nwith TLS, certificate {encryption.key_pair.fingerprint}"
        if gateway is not None:
            place = tcp.shown(gateway.getHost().host, gateway.getHost().port)
            serving += f"\nfor stock git on {'http' if encryption is None else 'https'}://{place}/"
        if counters is not None:
            place = f"http://{tcp.shown(counters.getHost().host, counters.getHost().port)}"
            serving += f"\nmetrics on {place}/metrics" if b"/metrics" in pages else f"\n{NO_METRICS}"
            serving += f"\nready or not on {place}/readyz"
        if lacking := native.said():
            serving += f"\n{lacking}"
        reactor.addSystemEventTrigger("before", "shutdown", listening.stopListening)
        if is_first:
            # Said once it runs: from then on it can be told to stop.
            reactor.callLater(0, lambda: click.echo(serving, err=True))
            # Once a server, not once for each client that sshd lets in.
            executor.run(lambda: tidy_all(site, executor), lambda _: None, Lane.UPKEEP)
    reactor.addSystemEventTrigger("before", "shutdown", stopping)
    reactor.addSystemEventTrigger("after", "shutdown", executor.stop)
    if remote_texts is not None:
        reactor.addSystemEventTrigger("after", "shutdown", remote_texts.close)
    on_ending(lambda number: reactor.callFromThread(lambda: again(number)))
    if workers > 1:
        signal.signal(STOP, lambda number, _: reactor.callFromThread(lambda: again(number)))
        signal.signal(TERMINATE, lambda *_: reactor.callFromThread(lambda: again(signal.SIGTERM)))
    # What is loaded stays: a full collection then walks what requests left and not 40,000 objects more, 15 ms in which
    # nothing is answered.
    gc.freeze()
    reactor.run(installSignalHandlers=False)


def _decide(auto: AutoSize, reactor: Reactor) -> None:
    """Look at the sizes of caches, now and then."""
    from smartserver.server.cache_sizes import EVERY

    auto.decide()
    reactor.callLater(EVERY, partial(_decide, auto, reactor))


def _load_readers() -> None:
    """Load what the first read of a repository would wait for. Workers share it."""
    from importlib import import_module

    from smartserver.records.delta import compress

    for name in ("bzr", "git", "hg"):
        import_module(f"smartserver.vcs.{name}.content")
    compress(b"")


def _open_port(host: str, port: int) -> socket.socket:
    from smartserver.server.tcp import open_port, shown

    try:
        return open_port(host, port)
    except OSError as wrong:
        raise CommandError(f"cannot listen on {shown(host, port)}: {wrong.strerror}") from None


def _check_asked(root: str, original: str) -> None:
    """Check that this server is the one that its client asked sshd for. `original`: SSH_ORIGINAL_COMMAND, the client's
    command in place of which sshd ran the forced one.

    A client sends paths from the folder on that its command names. Where this server serves another folder, each path
    would name a different place. A home (`.`) is the exception: what follows /~/ in a URL counts from ROOT.
    """
    try:
        words = shlex.split(original)
        options = words[words.index("serve") + 1 :]
    except ValueError:  # It is not there, or no command of ours.
        return
    asked = command.make_context("serve", options, resilient_parsing=True).params
    folder = asked["root"]
    if not asked["stdio"] or not folder or folder == "." or os.path.realpath(folder) == os.path.realpath(root):
        return
    raise UsageConflict(
        f"{folder} is not served: this login serves one folder alone, and hpss+ssh://HOST/~/PATH names PATH in it"
    )


def _metrics(site: Site, connections: Connections, common: CommonCounts | None, reactor: Reactor) -> dict[bytes, Page]:
    """Count requests by verb. Returns the page that shows them and all other counters, by its path; nothing where its
    library is missing. `common`: what the other workers count is shown with it."""
    try:
        from smartserver.server.metrics import ServerCollector, page
    except ModuleNotFoundError:
        return {}
    from smartserver.server.common_counts import EVERY
    from smartserver.server.request_meters import RequestMeters
    from smartserver.store.caches import HEADERS

    requests = RequestMeters()
    site.ended = requests.add

    def own() -> ServerCounts:
        return requests.counts(len(connections.open), {"texts": site.texts, "headers": HEADERS})

    if common is None:
        return {b"/metrics": partial(page, ServerCollector(own))}

    def tell() -> None:
        common.write(own())
        reactor.callLater(EVERY, tell)

    def all_workers() -> ServerCounts:
        common.write(own())
        return common.read()

    tell()
    reactor.addSystemEventTrigger("after", "shutdown", lambda: common.write(own()))
    return {b"/metrics": partial(page, ServerCollector(all_workers))}


def _tell(line: str) -> None:
    """Write a line to standard error, for the user who stops this process."""
    with contextlib.suppress(OSError):  # The terminal may be gone. What `sys.stderr` keeps would fail at the end.
        os.write(2, f"{line}\n".encode())


def _connections(count: int) -> str:
    return "1 connection has" if count == 1 else f"{count} connections have"
