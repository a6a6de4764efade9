"""`smartserver access`: check an access file, explain the rights of a user, and print its keys for sshd."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from pathlib import Path

import click

from smartserver.cli.access_files import FILE, is_shared, open_access, open_tokens
from smartserver.cli.errors import CommandError
from smartserver.cli.logs import NO_SYSLOG, SYSLOG, log_to
from smartserver.server import jail
from smartserver.server.patterns import split_entry
from smartserver.server.rules import ANONYMOUS, EVERYBODY, WORDS, AccessLevel, PublicKey, is_user_name
from smartserver.verbs.declare import Permission
from transports.errors import CodedError

PERMISSIONS = {
    AccessLevel.READ: Permission.READ,
    AccessLevel.WRITE: Permission.WRITE,
    AccessLevel.CREATE: Permission.CREATE,
    AccessLevel.FORCE: Permission.FORCE,
    AccessLevel.DELETE: Permission.DELETE,
    AccessLevel.ADMIN: Permission.ADMIN,
}


@click.group(short_help="Check an access file, explain what it gives a user, or print its keys for sshd.")
def command() -> None:
    """Check an access file of `smartserver serve --access FILE`, explain the rights of a user, or print its keys for
    sshd. In place of a file, STORE names rules that the servers of a store share: see `smartserver cluster access
    --help`.

    The file is TOML. The first rule that matches the user, the path of the repository and the ref decides. If no rule
    matches, nothing is allowed. `may` is none, read, write (refs forward), create (repositories and refs), force
    (rewind and delete refs), delete (repositories) or admin (settings, such as HEAD); each includes those before it. A
    rule with `refs` applies only to changes of these refs. In a pattern * is any part of a name, ** any number of
    names.

    \b
    [groups]
    core = ["anna", "ben"]
    \b
    [[rules]]
    who = ["@core"]
    path = "project/**"
    may = "admin"
    \b
    [[rules]]
    who = ["ci"]
    path = "project/**"
    refs = ["refs/tags/build-*", "trunk:tags/build-*"]
    may = "create"
    \b
    [[rules]]
    who = ["*"]
    path = "project/**"
    may = "read"

    Limits of sizes are in the same file. A push with a larger file, or one that makes the repository larger, is refused
    with a line that names it. Sizes are bytes, or have a unit (KB, MB, GB; KiB, MiB, GiB). For each limit the first
    entry that matches the path counts.

    \b
    [[limits]]
    path = "project/**"
    max-repository-size = "2 GB"
    max-file-size = "50 MB"
    """


@command.command(short_help="Check an access file.")
@FILE
def check(file: str) -> None:
    """Check an access file before a server reads it.

    \b
    smartserver access check new.toml && mv new.toml /etc/smartserver/access.toml
    """
    rules = open_access(file).rules
    named = {key.user for key in rules.keys} | {each.text.user for each in open_tokens(file).content.known}
    for name in sorted(set().union(*[rule.users for rule in rules.rules]) - named - {EVERYBODY, ANONYMOUS}):
        click.echo(f"{file}: {name} has no key and no token", err=True)
    for program in sorted({command[0] for hook in rules.hooks for command in (hook.before, hook.after) if command}):
        if not (os.path.isfile(program) and os.access(program, os.X_OK)):
            click.echo(f"{file}: hooks run {program}, which is not a program on this machine", err=True)
    counts = {"rule": len(rules.rules), "limit": len(rules.limits), "hook": len(rules.hooks)}
    found = [f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count]
    click.echo(f"{file}: {', '.join(found)}")


@command.command(short_help="Say whether a user may do something, and by which rule.")
@FILE
@click.argument("user")
@click.argument("level", type=click.Choice([word for word in WORDS if word != "none"]))
@click.argument("path")
@click.argument("ref", default="")
@click.pass_context
def explain(ctx: click.Context, file: str, user: str, level: str, path: str, ref: str) -> None:
    """Say whether USER has the right LEVEL to the repository at PATH of a server, and which rule decides. The exit
    status is 1 if not.

    With REF, the right is to change that ref. For a brz tag, REF is BRANCH:tags/NAME, where BRANCH is . for a branch
    that is not in a shared repository. For an hg bookmark it is :bookmarks/NAME. Users without a name are "anonymous".

    \b
    smartserver access explain access.toml anna write project/www refs/heads/main
    smartserver access explain access.toml anonymous read project/www
    """
    if not is_user_name(user):
        raise CommandError(f"{user!r} is not a valid user name: use letters, digits and _.@+-")
    try:
        path = jail.clean(path)
    except CodedError as error:
        raise CommandError(str(error)) from None
    needed = WORDS[level]
    if ref and not AccessLevel.WRITE <= needed <= AccessLevel.FORCE:
        raise CommandError(f"{level} is a right to the whole repository: leave out the ref")
    of, entry = split_entry(ref)
    name = (f"{of}\0{entry}" if entry else of).encode(errors="surrogateescape")
    found, rule = open_access(file).rules.decides(user, PERMISSIONS[needed], path, name)
    is_allowed = found >= needed
    verdict = f"yes: {user} has" if is_allowed else f"no: {user} does not have"
    about = f"the right {level!r} to {path or '.'}" + (f", {ref}" if ref else "")
    click.echo(f"{verdict} {about}, by {rule}" if rule is not None else f"{verdict} {about}: no rule is about that")
    ctx.exit(0 if is_allowed else 1)


@command.command(short_help="Print the authorized_keys lines of an access file's keys.")
@FILE
@click.argument("root")
@click.option("--lookup", nargs=2, metavar="TYPE KEY", help="Only the line of this key; nothing where nobody has it.")
@click.option("--log", "place", default="syslog", show_default=True, metavar="FILE|syslog", help="As of `serve`.")
def keys(file: str, root: str, lookup: tuple[str, str] | None, place: str) -> None:
    """Print a line of `authorized_keys` for each key of an access file. With the line, sshd lets that user access the
    repositories below ROOT as the rules of the file permit, and nothing else.

    The file has the keys of each user, each as in a .pub file:

    \b
    [keys]
    anna = ["ssh-ed25519 AAAA... anna@laptop"]

    With --lookup the command is an AuthorizedKeysCommand of sshd. One account of the machine then serves any number of
    people, and a key that is removed from the file is refused from the next login on. In sshd_config:

    \b
    Match User code
        AuthorizedKeysCommand /opt/bin/smartserver access keys /etc/smartserver/access.toml /srv/code --lookup %t %k
        AuthorizedKeysCommandUser code

    \b
    smartserver access keys /etc/smartserver/access.toml /srv/code > ~code/.ssh/authorized_keys
    """
    try:
        found = open_access(file).rules.keys
    except CommandError as error:
        if lookup is not None:  # sshd does not log the command's standard error.
            with contextlib.suppress(CommandError):
                log_to(place, False, journal=False, audits=False)
                logging.getLogger("smartserver").error("no user can log in with a key: %s", error)
        raise
    if lookup is None:
        if not Path(root).is_dir():
            click.echo(f"{root} is not a folder: create it, else no user can log in with these keys", err=True)
        if place == "syslog" and not os.path.exists(SYSLOG):
            click.echo(f"{NO_SYSLOG}: log-ins by these keys are not logged; --log FILE logs to a file", err=True)
    for key in found:
        if lookup is None or lookup == (key.kind, key.content):
            click.echo(
                f'restrict,command="{_quoted(_serve(file, root, place, key))}" {key.kind} {key.content} {key.user}'
            )


def _serve(file: str, root: str, place: str, key: PublicKey) -> str:
    """Return the command of a key with absolute paths, because sshd runs it in the account's home."""
    program = Path(sys.argv[0]).absolute()
    if not program.is_file():
        raise CommandError(f"{program} is not a program that sshd can run: call `smartserver` by its path")
    words = [str(program), "serve", str(Path(root).absolute()), "--stdio"]
    return shlex.join(
        [
            *words,
            "--access",
            file if is_shared(file) else str(Path(file).absolute()),
            "--log",
            place,
            "--user",
            key.user,
            "--key",
            key.fingerprint,
        ]
    )


def _quoted(text: str) -> str:
    """Escape text for double quotes in authorized_keys, where a backslash escapes only a quote (sshd(8))."""
    if "\n" in text:
        raise CommandError(f"{text!r}: a line of authorized_keys cannot have a newline")
    return text.replace('"', '\\"')
