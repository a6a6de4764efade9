"""`smartserver serve`: serve the repositories below a folder, of this machine or of another.

The options are declared here and checked in `check`. The server itself is in `serve_run`, whose import is slow.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from smartserver.cli.access_files import is_shared, open_access, open_tokens
from smartserver.cli.config_file import GroupedCommand, named_as_given, read_config
from smartserver.cli.errors import CommandError, UsageConflict
from smartserver.cli.logs import is_journal, log_requests_to, log_to
from smartserver.cli.place import is_store_url, local_place
from smartserver.cli.serve_options import (
    GROUPS,
    CheckedOptions,
    ServeOptions,
    banned_by,
    check_access_options,
    check_root,
    encryption_of,
    git_cache_size_of,
    level_of,
    memcached_servers,
    memory_of,
    metrics_place_of,
    parse_listen,
    policy_of,
    refuse_cache,
    refuse_with_stdio,
)
from smartserver.client.url import DEFAULT_PORT
from smartserver.gateway.git_command import git_command
from smartserver.records.faults import Level
from smartserver.server.limits import MAX_CONNECTIONS, MAX_OF_ADDRESS
from smartserver.wire.limits import STALL_TIMEOUT

if TYPE_CHECKING:
    from types import ModuleType

    from smartserver.gateway.git_command import GitCommand


@click.command(cls=GroupedCommand, groups=GROUPS, short_help="Serve the repositories below a folder over hpss://.")
@click.argument("root")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="Take options from a TOML file: each is a key there, by its name without the dashes, as workers = 4. The "
    "command line wins.",
)
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
    "--git-cache-size",
    type=click.IntRange(1),
    show_default="no limit",
    metavar="GB",
    help="What stock git reads (--http, ssh) may take in --cache-dir: the repositories that were used least recently "
    "are removed from there, and built again when they are used.",
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
def command(ctx: click.Context, /, **_: object) -> None:
    """Serve the repositories below the folder ROOT over hpss://. A repository in ROOT itself has the empty path.

    ROOT may be a bucket (s3://bucket/prefix), which any number of servers serve at once. Each keeps only copies of
    packs, in --cache-dir. See `smartserver cluster --help` for logs in a database.

    With --stdio ROOT may be a URL: of a folder on a machine without smartserver (sftp://[user@]host/path, with /~/ for
    the home there), of a bucket, or of a server with --allow-vfs (vfs://host/path). git, brz and hg start such a server
    themselves for hpss+sftp://, hpss+s3:// and hpss+vfs:// URLs. As the forced command of a key it serves ROOT alone: a
    client names a place in ROOT after /~/.

    The server runs until it gets SIGTERM, SIGINT (^C) or SIGHUP. Then it accepts no more requests and gives open ones
    30 seconds. With --metrics, after SIGTERM /readyz first answers 503 for 5 seconds.
    Its log goes to standard error, or to the place that --log names: the addresses that it serves, refused and stalled
    clients, and problems (a full disk, ...), at most ten lines of a kind a minute. With --access or --log the log also
    has a line for each change of a ref.

    \b
    smartserver serve ~/repositories
    smartserver serve /srv/code --listen 0.0.0.0:4155 --anonymous read
    smartserver serve ~/repositories --anonymous write --no-create
    smartserver serve /srv/code --listen 0.0.0.0:4155 --access /etc/smartserver/access.toml
    smartserver serve /srv/code --listen 0.0.0.0:4155 --tls /etc/ssl/code.pem --tls-key /etc/ssl/code.key
    smartserver serve /srv/code --listen 0.0.0.0:4155 --tls auto --require-tls
    smartserver serve s3://bucket/code --cache-dir /var/cache/smartserver --cache-size 50
    smartserver serve /srv/code --config /etc/smartserver/serve.toml
    ssh host smartserver serve /srv/code --stdio
    smartserver serve sftp://me@example.org/srv/code --stdio
    """
    with named_as_given(ctx):
        options = ServeOptions(**ctx.params)
        checked = check(ctx, options)
        if checked.encryption is None:
            # Twisted would import OpenSSL with the reactor, which takes 65 ms of each login by ssh.
            sys.modules.setdefault("twisted.internet._newtls", cast("ModuleType", None))
        from smartserver.cli.serve_run import run  # Imported late: 150 ms, which a mistyped option should not take.

        run(ctx, options, checked)


def check(ctx: click.Context, options: ServeOptions) -> CheckedOptions:
    """Open the logs, so that they get later errors, and check the options. No socket is opened yet."""
    if options.stdio:
        refuse_with_stdio(ctx)
    check_access_options(ctx)
    audits = bool(options.access or options.log_place)
    is_journaled = is_journal(2, os.environ)
    log_to(options.log_place, options.verbose, journal=is_journaled, audits=audits, is_login=options.stdio)
    if options.access_log is not None:
        log_requests_to(options.access_log)
    rules, tokens = None, None
    if options.access is not None and not is_shared(options.access):
        rules, tokens = open_access(options.access), None if options.stdio else open_tokens(options.access)
    root = local_place(options.root)
    is_bucket = root.startswith("s3://") and not options.stdio
    is_remote = is_store_url(root) and not is_bucket
    if not is_bucket:
        refuse_cache(ctx)
    if is_remote and not options.stdio:
        raise CommandError(f"{root} is on another machine: it can be served with --stdio only")
    if not is_store_url(root):
        _check_folder(root, options)
    return CheckedOptions(
        root=root,
        is_bucket=is_bucket,
        is_remote=is_remote,
        rules=rules,
        tokens=tokens,
        listen=("", 0) if options.stdio else parse_listen(options.listen),
        http=None if options.http is None else parse_listen(options.http, "--http", None),
        git_cache_size=git_cache_size_of(options.git_cache_size, ctx),
        asked=_git_command(os.environ.get("SSH_ORIGINAL_COMMAND", "")) if options.stdio else None,
        metrics=metrics_place_of(options.metrics, public=options.metrics_public),
        encryption=encryption_of(options.tls, options.tls_key, required=options.require_tls),
        banned=banned_by(options.rules),
        policy=policy_of(options.fsck, options.ignored),
        level=level_of(options.compression),
        memcached=memcached_servers(options.memcached),
        memory=memory_of(options.memory_cache_size),
    )


def _git_command(original: str) -> GitCommand | None:
    """Return the command of git that the client requested from sshd; None if it requested `smartserver serve`, or
    nothing. Refuse any other command, because its client would wait for ever. `original`: SSH_ORIGINAL_COMMAND."""
    asked = git_command(original)
    try:
        words = shlex.split(original)
    except ValueError:
        words = [original]
    is_ours = "serve" in words and any("smartserver" in word for word in words[: words.index("serve")])
    if original and asked is None and not is_ours:
        raise UsageConflict(
            f"this login is for git, and for smartserver's own clients: it does not run {original[:100]!r}"
        )
    return asked


def _check_folder(root: str, options: ServeOptions) -> None:
    if options.stdio:
        _check_asked(root, os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    # Print no warning for /home or /srv, which hpss+ssh:// serves and nobody expects to be writable.
    is_home = options.stdio and options.anonymous is None and Path(root).resolve().parent.name != ""
    check_root(Path(root), makes=(options.anonymous == "write" or is_home) and not options.no_create)


def _check_asked(root: str, original: str) -> None:
    """Check that the client requested the folder that this server serves. `original`: SSH_ORIGINAL_COMMAND, the
    client's command, which sshd replaced by the forced command.

    A client sends paths relative to the folder that its command names. If this server served another folder, each path
    would name a different place. The exception is a home (`.`): the path after /~/ in a URL is relative to ROOT.
    """
    try:
        words = shlex.split(original)
        options = words[words.index("serve") + 1 :]
    except ValueError:  # There is no such command, or it is not `smartserver serve`.
        return
    asked = command.make_context("serve", options, resilient_parsing=True).params
    folder = asked["root"]
    if not asked["stdio"] or not folder or folder == "." or os.path.realpath(folder) == os.path.realpath(root):
        return
    raise UsageConflict(
        f"{folder} is not served: this login serves only one folder; use hpss+ssh://HOST/~/PATH for PATH in that folder"
    )
