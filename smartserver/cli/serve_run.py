"""The server that `smartserver serve` runs, from its sockets to its end.

The order matters. First sockets are opened, and caches that workers share are made. Then workers are forked. The
reactor, and everything with connections or threads of its own, is created after the fork.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import click
from twisted.internet import error
from twisted.logger import globalLogPublisher

from smartserver.cli.access_files import is_shared, open_access, open_tokens
from smartserver.cli.errors import CommandError, one_line
from smartserver.cli.interrupts import on_ending
from smartserver.cli.place import above, open_store, with_copies
from smartserver.cli.process import raise_descriptors, use_one_heap
from smartserver.cli.serve_gateway import git_folder, listen_for_git, serve_git
from smartserver.cli.serve_options import (
    CheckedOptions,
    ServeOptions,
    cache_folder,
    hook_environment,
    open_memcached,
    peer_of,
    state_folder,
)
from smartserver.cli.user import user
from smartserver.cli.workers import STOP, TERMINATE, fork_workers
from smartserver.records import native
from smartserver.server import stdio, tcp
from smartserver.server.access import Admission, Anonymous, RuledUser, by_token, on_streams
from smartserver.server.cache_sizes import EVERY, START, AutoSize, divide, follow
from smartserver.server.connections import Connections
from smartserver.server.deliveries import Deliveries
from smartserver.server.executor import Lane
from smartserver.server.health import Health, look_at
from smartserver.server.hooks import Hooks
from smartserver.server.limits import Limits
from smartserver.server.open_files import MAX_OF_SITE, SHARE, OpenFiles
from smartserver.server.pages import PagesFactory
from smartserver.server.site import Site
from smartserver.server.startup import inside_of, tidy_all
from smartserver.server.threads import ThreadExecutor
from smartserver.server.verdicts import Verdicts
from smartserver.store.caches import HEADERS
from smartserver.store.cluster import mark_of
from smartserver.store.preview_folder import PreviewedStore

if TYPE_CHECKING:
    from twisted.logger import ILogObserver

    from smartserver.gateway.git_command import GitCommand
    from smartserver.server.common_cache import CommonCache
    from smartserver.server.common_counts import CommonCounts
    from smartserver.server.pages import Page
    from smartserver.server.request_meters import ServerCounts
    from smartserver.server.rules import AccessFile
    from smartserver.server.shell import SessionProtocol
    from smartserver.server.startup import Reactor
    from transports.base import Transport

STOP_AFTER = 30.0
"""Seconds that open requests may take to complete after a signal to stop."""

NOTICE = 5.0
"""Seconds after SIGTERM in which a server with `/readyz` still accepts connections. A load balancer that polls each
second has stopped sending connections by then."""

SWITCH_INTERVAL = 0.0005
"""Seconds for which a worker thread keeps Python's interpreter lock while the reactor waits for it. Beside four first
pushes, 90 and 99 % of the pings were answered in 20 and 65 ms. With Python's own 5 ms it took 29 and 87, and as much
CPU time."""

NO_METRICS = "no /metrics: pip install 'smartserver[metrics]'"

EVERYWHERE = ("0.0.0.0", "::")
"""The addresses that mean every address of a machine."""


@dataclass
class ServingProcess:
    """The state of this process among the processes that serve the same sockets."""

    is_first: bool = True
    """True if this process prints messages for all workers."""
    texts: CommonCache | None = None
    counts: CommonCounts | None = None


def run(ctx: click.Context, options: ServeOptions, checked: CheckedOptions) -> None:
    """Serve until a signal, or with `--stdio` the client, ends the server."""
    if not options.stdio:
        _load_readers()
    use_one_heap()
    descriptors = raise_descriptors()
    sockets: list[socket.socket | None] = []
    if not options.stdio:
        places = (checked.listen, checked.http, checked.metrics)
        sockets = [None if place is None else ctx.with_resource(_open_port(*place)) for place in places]
    process = _forked(options, [each for each in sockets if each is not None])
    transport = open_store(checked.root, ctx.obj or frozenset())  # After the fork: a bucket's library has threads.
    if options.access is not None and is_shared(options.access):
        checked.rules = open_access(options.access)
        checked.tokens = None if options.stdio else open_tokens(options.access)
    if checked.is_bucket:
        transport = with_copies(transport, options.cache_dir or cache_folder(os.environ), options.cache_size)
    from twisted.internet import reactor

    serving = Serving(options, checked, cast("Reactor", reactor), transport, process, descriptors)
    if checked.asked is not None:
        ctx.exit(serving.answer_git(checked.asked))
    serving.run(sockets)


def _forked(options: ServeOptions, sockets: list[socket.socket]) -> ServingProcess:
    """Fork workers if the options ask for several, and return in each of them."""
    if not sockets or options.workers == 1:
        return ServingProcess()
    from smartserver.server.common_cache import CommonCache  # Imported late: a login by ssh does not need it.
    from smartserver.server.common_counts import CommonCounts

    texts = CommonCache(options.shared_cache << 20, options.workers) if options.shared_cache else None
    counts = CommonCounts(options.workers)
    number, is_first = fork_workers(options.workers, sockets)
    counts.belong_to(number)
    if texts is not None:
        texts.belong_to(number)
    return ServingProcess(is_first, texts, counts)


class Serving:
    """One process that serves."""

    def __init__(
        self,
        options: ServeOptions,
        checked: CheckedOptions,
        reactor: Reactor,
        transport: Transport,
        process: ServingProcess,
        descriptors: int,
    ) -> None:
        self._options, self._checked = options, checked
        self._reactor = reactor
        self._process = process
        self._memcached = open_memcached(checked.memcached)
        self._deliveries: Deliveries | None = None
        """The deliveries to receivers of hooks; None without an access file."""
        self.site = self._made_site(transport, descriptors)
        self._executor = ThreadExecutor(reactor.callFromThread)
        limits = Limits(options.max_connections, options.max_per_address, options.idle_timeout)
        self._connections = Connections(self.site, self._executor, reactor, limits)
        with one_line(above(checked.root)):
            mark = None if checked.metrics is None else mark_of(transport)
        self._health = Health(lambda: look_at(transport, mark), self._executor, reactor)
        self._session: SessionProtocol | None = None
        """The session of `--stdio`; None otherwise."""
        self._is_told = False
        """True once a signal has stopped the server."""

    def _made_site(self, transport: Transport, descriptors: int) -> Site:
        options, checked = self._options, self._checked
        site = Site(
            transport,
            may_create=not options.no_create,
            allows_vfs=options.allow_vfs,
            banned=checked.banned,
            policy=checked.policy,
            compression=checked.level,
            slow=None if options.slow is None else options.slow / 1000,
        )
        if checked.rules is not None:
            self._obey(checked.rules, site)
        site.texts.common = HEADERS.common = self._process.texts
        site.texts.remote = self._memcached
        if checked.memory is not None or options.stdio:  # The session of one client is too short for an estimate.
            divide(site.texts, START if checked.memory is None else checked.memory)
        if checked.memory is not None:
            follow(site.texts)
        elif not options.stdio:
            self._reactor.callLater(EVERY, partial(self._decide_sizes, AutoSize(site.texts, options.workers)))
        site.open_files = OpenFiles(min(MAX_OF_SITE, descriptors // SHARE))
        if checked.is_remote:
            site.name, site.tidies = checked.root, False
            # Its only user sees the errors as answers.
            logging.getLogger("smartserver").setLevel(logging.INFO if options.verbose else logging.ERROR)
        else:  # Only here are links checked: the user of a remote store has an account there with the same rights.
            site.inside = inside_of(transport)
        return site

    def _obey(self, rules: AccessFile, site: Site) -> None:
        """Apply the limits and hooks of an access file to a site."""
        site.sizes = rules.sizes
        bucket: PreviewedStore | None = None
        if self._checked.is_bucket:
            copies = os.path.abspath(self._options.cache_dir or cache_folder(os.environ))
            bucket = PreviewedStore(self._checked.root, copies, self._options.cache_size)
        verdicts = Verdicts(state_folder(os.environ) / "hooks")
        site.hooks = Hooks(rules.hooks, hook_environment(os.environ), verdicts, bucket)
        deliveries = self._deliveries = Deliveries(site.hooks, lambda path: site.find(path).repository)
        site.changed = lambda repository: deliveries.add(repository.path)
        self._reactor.addSystemEventTrigger("after", "shutdown", deliveries.stop)

    def _decide_sizes(self, auto: AutoSize) -> None:
        """Adapt the sizes of caches, and again every `EVERY` seconds."""
        auto.decide()
        self._reactor.callLater(EVERY, partial(self._decide_sizes, auto))

    def answer_git(self, asked: GitCommand) -> int:
        """Answer a command of git on standard input and output. Return the exit status."""
        status = serve_git(
            self.site,
            asked,
            self._admission(),
            self._peer(),
            git_folder(self._options.cache_dir, os.environ),
            self._checked.git_cache_size,
            os.environ,
        )
        if self._deliveries is not None:  # There is no reactor, whose shutdown would stop them.
            self._deliveries.stop()
        return status

    def run(self, sockets: list[socket.socket | None]) -> None:
        """Serve until the end, on open sockets (for hpss, stock git, metrics), or without sockets on standard input and
        output."""
        reactor, executor = self._reactor, self._executor
        if sockets:
            served, git_port, pages_port = sockets
            assert served is not None  # The first socket always exists.
            self._accept(served, git_port, pages_port)
        else:
            self._serve_streams()
        reactor.addSystemEventTrigger("before", "shutdown", self._stopping)
        reactor.addSystemEventTrigger("after", "shutdown", executor.stop)
        if self._memcached is not None:
            reactor.addSystemEventTrigger("after", "shutdown", self._memcached.close)
        on_ending(lambda number: reactor.callFromThread(lambda: self._told(number)))
        if self._options.workers > 1:
            signal.signal(STOP, lambda number, _: reactor.callFromThread(lambda: self._told(number)))
            signal.signal(TERMINATE, lambda *_: reactor.callFromThread(lambda: self._told(signal.SIGTERM)))
        # Freeze all loaded objects. Otherwise each full collection walks 40,000 more objects, 15 ms without answers.
        gc.freeze()
        sys.setswitchinterval(SWITCH_INTERVAL)
        reactor.run(installSignalHandlers=False)

    # -- the beginning

    def _serve_streams(self) -> None:
        if self._options.log_place is None:  # The client gets refusals as answers; standard error is its terminal.
            logging.getLogger("smartserver.refusals").setLevel(logging.ERROR)
        self._session = stdio.serve(self._connections, self._admission(), self._peer())
        self._session.when_lost = self._tidied

    def _admission(self) -> Admission:
        """Return the rights of the user of standard input and output."""
        options, rules = self._options, self._checked.rules
        name = options.name or user()
        if rules is not None:
            return RuledUser(name, rules, options.key or "")
        return on_streams(name, Anonymous(options.anonymous) if options.anonymous else None)

    def _peer(self) -> str:
        return peer_of(self._options.name or user(), os.environ.get("SSH_CONNECTION", ""))

    def _accept(self, opened: socket.socket, git_port: socket.socket | None, pages_port: socket.socket | None) -> None:
        options, checked, reactor = self._options, self._checked, self._reactor
        by_address = tcp.anonymous_by_address(Anonymous(options.anonymous or "read"))
        rules, tokens = checked.rules, checked.tokens
        admit = by_address if rules is None or tokens is None else by_token(rules, tokens)
        listening = tcp.accept(reactor, opened, tcp.TcpFactory(self._connections, admit, checked.encryption))
        others = "" if git_port is None else self._serve_git(git_port)
        others += "" if pages_port is None else self._serve_pages(pages_port)
        globalLogPublisher.addObserver(cast("ILogObserver", tcp.log_unaccepted))
        unopened = tcp.fast_open(listening) if options.fast_open else ""
        reactor.addSystemEventTrigger("before", "shutdown", listening.stopListening)
        if self._process.is_first:
            if unopened:
                click.echo(f"--fast-open has no effect: {unopened}", err=True)
            serving = self._described(listening.getHost().port) + others
            # Print it when the reactor runs, since the server can be stopped by a signal from then on.
            reactor.callLater(0, lambda: click.echo(serving, err=True))
            # Tidy once in each server, not for each client of sshd.
            self._executor.run(lambda: tidy_all(self.site, self._executor), lambda _: None, Lane.UPKEEP)

    def _described(self, port: int) -> str:
        """Return the lines for the user about the address, and about who has access."""
        options, checked, host = self._options, self._checked, self._checked.listen[0]
        everywhere = ", every address of this machine" if host in EVERYWHERE else ""
        anonymous = f"anonymous users: {Anonymous(options.anonymous or 'read')}"
        users = anonymous if options.access is None else f"access: {options.access}"
        scheme = "hpss+tls" if options.require_tls else "hpss"
        line = f"serving {checked.root} on {scheme}://{tcp.shown(host, port)}/{everywhere} ({users})"
        if checked.encryption is not None:
            line += f"\nwith TLS, certificate {checked.encryption.key_pair.fingerprint}"
        lacking = native.said()
        return f"{line}\n{lacking}" if lacking else line

    def _serve_git(self, port: socket.socket) -> str:
        """Serve stock git. Return the line about its address for the user."""
        options, checked = self._options, self._checked
        users = None if checked.rules is None or checked.tokens is None else (checked.rules, checked.tokens)
        listening = listen_for_git(
            port,
            self._connections,
            self._reactor,
            folder=git_folder(options.cache_dir, os.environ),
            cache_size=checked.git_cache_size,
            access=users,
            anonymous=Anonymous(options.anonymous or "read"),
            encryption=checked.encryption,
            is_first=self._process.is_first,
        )
        self._reactor.addSystemEventTrigger("before", "shutdown", listening.stopListening)
        found = listening.getHost()
        scheme = "http" if checked.encryption is None else "https"
        return f"\nfor stock git on {scheme}://{tcp.shown(found.host, found.port)}/"

    def _serve_pages(self, port: socket.socket) -> str:
        """Serve metrics and health. Return the lines about their address for the user."""
        pages = self._health.pages | metrics_pages(self.site, self._connections, self._process.counts, self._reactor)
        found = tcp.accept(self._reactor, port, PagesFactory(pages, self._reactor)).getHost()
        place = f"http://{tcp.shown(found.host, found.port)}"
        metrics = f"metrics on {place}/metrics" if b"/metrics" in pages else NO_METRICS
        return f"\n{metrics}\nready or not on {place}/readyz"

    # -- the end

    def _told(self, number: int) -> None:
        """Handle a signal to stop. The first signal stops the server; after the second, the server no longer waits for
        open requests.

        With a remote store, the first signal also aborts the session, because its only user has ended the command."""
        if self._is_told and number == signal.SIGHUP:
            return  # Both a closed terminal and its shell send it.
        if number == signal.SIGTERM and self._checked.metrics is not None and not self._health.is_stopping:
            self._health.is_stopping = True
            _tell(f"stopping: connections are accepted for another {NOTICE:.0f} s, and /readyz answers 503")
            self._reactor.callLater(NOTICE, self._after_notice)
            return
        self._health.is_stopping = True
        if self._is_told:
            self._connections.cut()
        elif self._checked.is_remote and self._session is not None and self._session in self._connections.open:
            self._session.abort()
        self._is_told = True
        self._stop()

    def _after_notice(self) -> None:
        if not self._is_told:
            self._told(signal.SIGTERM)

    def _stop(self) -> None:
        with contextlib.suppress(error.ReactorNotRunning):  # A signal has stopped it already.
            self._reactor.stop()

    def _stopping(self) -> object:
        if busy := self._connections.busy:
            grace = f"{STOP_AFTER:.0f} s to finish what was asked (a second signal ends it now)"
            _tell(f"stopping: {_connections(busy)} {grace}")
        return self._connections.stop(STOP_AFTER)

    def _tidied(self) -> None:
        """Stop after the upkeep of a push is done, even if the client has disconnected. If each process serves one
        client, no later process would do the upkeep. After a signal, the server is stopping already."""
        if self._executor.stopping:
            return
        self._executor.stopping = True
        self._executor.run(lambda: None, lambda _: self._stop(), Lane.UPKEEP)


def _load_readers() -> None:
    """Import the modules that the first read of a repository needs, before the fork, so that workers share them."""
    from importlib import import_module

    from smartserver.records.delta import compress

    for name in ("bzr", "git", "hg"):
        import_module(f"smartserver.vcs.{name}.content")
    compress(b"")


def _open_port(host: str, port: int) -> socket.socket:
    try:
        return tcp.open_port(host, port)
    except OSError as failed:
        raise CommandError(f"cannot listen on {tcp.shown(host, port)}: {failed.strerror}") from None


def metrics_pages(
    site: Site, connections: Connections, common: CommonCounts | None, reactor: Reactor
) -> dict[bytes, Page]:
    """Count requests by verb. Return the page of these and all other counters, by its path; an empty dict if the
    library is missing. `common`: the counts of all workers, which the page adds up."""
    try:
        from smartserver.server.metrics import ServerCollector, page
    except ModuleNotFoundError:
        return {}
    from smartserver.server.common_counts import EVERY as COUNT_EVERY
    from smartserver.server.request_meters import RequestMeters

    requests = RequestMeters()
    site.ended = requests.add

    def own() -> ServerCounts:
        return requests.counts(len(connections.open), {"texts": site.texts, "headers": HEADERS})

    if common is None:
        return {b"/metrics": partial(page, ServerCollector(own))}

    def tell() -> None:
        common.write(own())
        reactor.callLater(COUNT_EVERY, tell)

    def all_workers() -> ServerCounts:
        common.write(own())
        return common.read()

    tell()
    reactor.addSystemEventTrigger("after", "shutdown", lambda: common.write(own()))
    return {b"/metrics": partial(page, ServerCollector(all_workers))}


def _tell(line: str) -> None:
    """Write a line to standard error, for the user who stops this process."""
    with contextlib.suppress(OSError):  # The terminal may be closed; text that `sys.stderr` keeps would fail later.
        os.write(2, f"{line}\n".encode())


def _connections(count: int) -> str:
    return "1 connection has" if count == 1 else f"{count} connections have"
