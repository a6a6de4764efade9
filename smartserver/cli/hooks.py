"""`smartserver hooks`: test the hooks of an access file, or mirror a repository as an `after` hook."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from smartserver.cli.access_files import open_access
from smartserver.cli.errors import CommandError
from smartserver.cli.place import is_store_url, local_place, repository_in
from smartserver.cli.serve_options import hook_environment
from smartserver.client.plain import plain
from smartserver.errors import shown
from smartserver.programs import exit_reason
from smartserver.records.system import system_of
from smartserver.server import jail
from smartserver.server.hook_process import run_command
from smartserver.store.preview_folder import NEW
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.server.hook_rules import Hook
    from smartserver.store.snapshot import Snapshot

EXAMPLE = "refs/heads/example"
"""The ref of the change that is made up if the user names no ref."""

LOCAL_SSH = "sh -c 'for last; do :; done; exec sh -c \"$last\"' ssh"
"""The command that git runs instead of ssh. It runs the remote command on this machine."""


@click.group(short_help="Try the hooks of an access file, or mirror a repository as one.")
def command() -> None:
    """Test the hooks of `smartserver serve --access FILE`, or mirror a repository to another place as an `after` hook.

    The access file has the hooks: commands that run before a change and can refuse it (`before`), and receivers that
    are notified after it, a command (`after`) or a URL (`url`). See doc/howto/run_hooks.md.

    \b
    [[hooks]]
    path = "project/**"
    before = ["/opt/checks/messages", "--strict"]
    time-limit = 30
    \b
    [[hooks]]
    path = "project/**"
    url = "https://ci.example.org/pushed"
    secret = "of both"
    """


@command.command(short_help="Run the hooks of a repository for a change, which is not made.")
@click.argument("file", metavar="FILE|STORE")
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.argument("path")
@click.option(
    "--ref", help="The change is that of this ref, to where it is from the parent of that; else it is made up."
)
@click.option("--user", "name", default="anonymous", show_default=True, metavar="NAME", help="Who makes the change.")
@click.option("-o", "--option", "options", multiple=True, metavar="TEXT", help="A push option; may be repeated.")
@click.option("--send", is_flag=True, help="Tell the receivers too; else what they would be told is shown.")
@click.pass_context
def test(
    ctx: click.Context,
    file: str,
    root: str,
    path: str,
    ref: str | None,
    name: str,
    options: tuple[str, ...],
    send: bool,
) -> None:
    """Run the hooks that FILE has for the repository at PATH below the served folder ROOT, and print the result of
    each. The change that the hooks judge is not made. The exit status is 1 if a hook refuses it, or a receiver fails.

    SMARTSERVER_NEW names the repository itself.

    \b
    smartserver hooks test /etc/smartserver/access.toml /srv/code project
    smartserver hooks test new.toml /srv/code project --ref refs/heads/main --user anna
    smartserver hooks test new.toml /srv/code project --ref main --send
    """
    try:
        path = jail.clean(path)
    except CodedError as error:
        raise CommandError(str(error)) from None
    hooks = [hook for hook in open_access(file).rules.hooks if hook.fits(path)]
    if not hooks:
        click.echo(f"{file} has no hook for {path or '.'}")
        return
    folder = os.path.abspath(os.path.join(local_place(root), path))
    with repository_in(folder, ctx.obj or frozenset(), writes=False) as repository:
        snapshot = repository.snapshot()
        said: dict[str, object] = {
            "path": path,
            "vcs": snapshot.state.vcs,
            "user": name,
            "request": os.urandom(16).hex(),
        }
        said |= {"repository": "changed", "options": list(options), "changes": [_change(snapshot, ref)]}
    environment = hook_environment(os.environ)
    done = [_try(hook, said, environment, folder, send=send) for hook in hooks]
    ctx.exit(0 if all(done) else 1)


def _change(snapshot: Snapshot, ref: str | None) -> dict[str, object]:
    """Return a change in the form for hooks: `ref` moves from the parents of its tips to its tips, or without `ref`,
    `EXAMPLE` is created at the tips of the first ref."""
    refs, system = snapshot.state.refs(), system_of(snapshot.state.vcs)
    if ref is None:
        tips = next(iter(refs.values()), ())
        return {"ref": EXAMPLE, "old": [], "new": [system.id_text(tip.id) for tip in tips]}
    names = [each.encode(errors="surrogateescape") for each in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}")]
    found = next((name for name in names if name in refs), None)
    if found is None:
        listed = ", ".join(shown(each) for each in list(refs)[:5])
        there = f"there is {listed}" if listed else "the repository has none"
        raise CommandError(f"there is no ref {ref!r}; {there}")
    ordinals = [snapshot.graph.ordinal(tip.id) for tip in refs[found]]
    parents = [parent for ordinal in ordinals if ordinal is not None for parent in snapshot.graph.parents(ordinal)[:1]]
    old = [system.id_text(snapshot.graph.revision(each)) for each in dict.fromkeys(parents)]
    return {"ref": shown(found), "old": old, "new": [system.id_text(tip.id) for tip in refs[found]]}


def _try(hook: Hook, said: Mapping[str, object], environment: Mapping[str, str], folder: str, *, send: bool) -> bool:
    """Run a hook and print its result. Return False if it refuses the change, or its receiver fails."""
    from smartserver.server.deliveries import tell  # Imported late, with the modules that send to URLs.
    from smartserver.server.hook_url import ReceiverFailed

    accepts = True
    if hook.before:
        with tempfile.TemporaryDirectory(prefix="smartserver-hook-") as place:
            try:
                ended = run_command(hook.before, said, {**environment, NEW: folder}, Path(place), hook.time_limit)
            except OSError as error:
                raise CommandError(f"{hook.before[0]} cannot be run: {error.strerror}") from None
        accepts = not ended.why
        click.echo(plain(f"before {hook.before[0]}: {'accepts' if accepts else f'refuses: {ended.why}'}"))
    if not hook.receiver:
        return accepts
    receiver = hook.url or f"after {hook.after[0]}"
    if not send:
        click.echo(plain(f"{receiver}: would be told {json.dumps(said)}"))
        return accepts
    try:
        tell(hook, said, environment, folder)
    except ReceiverFailed as error:
        click.echo(plain(f"{receiver}: fails: {error}"))
        return False
    click.echo(plain(f"{receiver}: was told"))
    return accepts


@command.command(short_help="Push a git repository to another place, as an `after` hook.")
@click.argument("url")
@click.option(
    "--folder",
    required=True,
    type=click.Path(file_okay=False),
    help="Where a bare clone of each repository is kept; all of it can be fetched again.",
)
def mirror(url: str, folder: str) -> None:
    """Push all refs of the repository in SMARTSERVER_REPOSITORY to URL with `git push --mirror`, which deletes all
    other refs there. Use it as the `after` command of a hook, which sets that variable, and which the server retries
    until it succeeds.

    URL is one to which git pushes without a question: give the server's account a key, or git a credential helper.

    \b
    [[hooks]]
    path = "project"
    after = ["/opt/smartserver/bin/smartserver", "hooks", "mirror", "--folder", "/var/cache/smartserver/mirrors",
             "git@github.com:example/project.git"]
    time-limit = 600
    """
    source = os.environ.get("SMARTSERVER_REPOSITORY", "")
    if not source or is_store_url(source):
        raise CommandError(
            "SMARTSERVER_REPOSITORY names no folder of a repository: run this command from an `after` hook"
        )
    with repository_in(source, writes=False) as repository:
        vcs = repository.snapshot().state.vcs
    if not vcs.startswith("git "):
        raise CommandError(f"{source} is a repository of {vcs}: only git has `push --mirror`")
    clone = os.path.join(folder, hashlib.sha256(f"{source}\0{url}".encode()).hexdigest()[:16])
    environment = hook_environment(os.environ)
    if not os.path.isdir(clone):
        form = "sha256" if "sha256" in vcs else "sha1"
        _git(environment, "init", "--quiet", "--bare", f"--object-format={form}", clone)
    local_environment = {**environment, "GIT_SSH_COMMAND": LOCAL_SSH}
    place = f"hpss+ssh://localhost{quote(os.path.abspath(source))}"
    _git(local_environment, "-C", clone, "fetch", "--quiet", "--prune", "--no-tags", place, "+refs/*:refs/*")
    _git(environment, "-C", clone, "push", "--quiet", "--mirror", url)


def _git(environment: Mapping[str, str], *words: str) -> None:
    """Run git without prompting the user. Raise `CommandError` if it fails."""
    try:
        done = subprocess.run(["git", *words], env={**environment, "GIT_TERMINAL_PROMPT": "0"}, check=False)
    except OSError as error:
        raise CommandError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        name = words[0] if words[0] != "-C" else words[2]
        raise CommandError(f"git {name} failed with {exit_reason(done.returncode)}")
