"""The work of `git-remote-hpss` once it is loaded: it serves one git command, and says an error in one line on
stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from smartserver.cli.interrupts import Interrupts
from smartserver.cli.session import AGENT, client_for
from smartserver.client.held import AgentHolder, Holder, holder_for
from smartserver.client.knowledge import Knowledge, cache_folder
from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.places import login_of, parse_place
from smartserver.client.plain import plain
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import NotOurProtocol
from smartserver.client.session import Tool
from smartserver.client.url import BadUrl
from smartserver.plugins.git.hint import proc_command_line, ps_command_line, read
from smartserver.plugins.git.remote import GitRemote
from smartserver.plugins.git.terminal import CannotGoOn
from smartserver.plugins.git.words import in_words
from smartserver.programs import repository_environment
from smartserver.spans import Part, span
from smartserver.trace.flags import VARIABLE, BadFlag
from smartserver.vcs.base import VcsError
from smartserver.vcs.git.repository import GitRepository
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.credentials import TokenSource
    from smartserver.plugins.git.credentials import RunProgram

FAILED = 128
"""Exit status of a git command that could not go on."""

INTERRUPTED = 130

FALSE = ("0", "false", "no", "off", "")
"""Values of a variable that git takes for false."""


def serve(
    remote: str,
    url: str,
    environment: Mapping[str, str],
    *,
    parent: int,
    holder: Holder | None = None,
    run_program: RunProgram | None = None,
) -> int:
    """Serve one git command, run by the process `parent`: the exit status. An interrupt ends it without a word,
    whatever became of it: git's user knows what he did. `run_program`: runs programs at the user's terminal; default:
    this process is there."""
    at_end = contextlib.ExitStack()
    interrupts = Interrupts()
    status = 0
    try:
        try:
            interrupts.heed()
            run(remote, url, environment, at_end, parent, holder, run_program or partial(run_here, environment))
        finally:
            interrupts.end()
    except BaseException as error:
        if not interrupts.number:
            status = FAILED
            _say(error, url, environment)
    finally:
        at_end.close()
    sys.stderr.flush()
    return INTERRUPTED if interrupts.number else status


def _say(error: BaseException, url: str, environment: Mapping[str, str]) -> None:
    """Say it in a line. What no run may end with is raised."""
    match error:
        case BrokenPipeError():
            return  # Git is gone, and has said why.
        case MediumError() | ProtocolError() | NotOurProtocol():
            place = "" if isinstance(error, CannotConnect) else f"{parse_place(url).where}: "
            line = f"{place}{plain(str(error))}"
        case VcsError() | CodedError():
            line = plain(in_words(error, parse_place(url)))
        case CannotGoOn() | BadUrl() | BadFlag():
            line = plain(str(error))
        case OSError():
            # What is written without a name is the repository's.
            place = error.filename or environment.get("GIT_DIR") or "this machine"
            line = f"{place}: {error.strerror or error}"
        case _:
            raise error
    sys.stderr.write(f"fatal: hpss: {line}\n")


def is_of_user(environment: Mapping[str, str]) -> bool:
    """True if git's user wrote the URL. Git sets GIT_PROTOCOL_FROM_USER (git(1)) to a false value for a URL that comes
    from a repository: that of a submodule."""
    return environment.get("GIT_PROTOCOL_FROM_USER", "1").lower() not in FALSE


def check_origin(url: str, environment: Mapping[str, str]) -> None:
    """Accept a URL that git's user wrote, and any other that says nothing of how a machine is to be checked.

    Raises:
        BadUrl: a repository's files would change the check.
    """
    said = parse_place(url).query
    if said and not is_of_user(environment):
        once = "run `smartserver trust`" if said.startswith("?ca=") else "log in there once with ssh"
        why = f"{said} comes from a repository (.gitmodules), which may not say it: {once}"
        raise BadUrl(url, f"{why}, so that the machine is known")


def run_here(
    environment: Mapping[str, str], words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool
) -> bytes:
    """The output of a program; empty if it failed. `said`: its input."""
    import subprocess

    errors = subprocess.DEVNULL if quiet else None
    its = {**repository_environment(environment), **variables}
    try:
        done = subprocess.run(words, env=its, input=said, stdout=subprocess.PIPE, stderr=errors, check=False)
    except OSError:
        return b""
    return b"" if done.returncode else done.stdout


def ssh_of_git(environment: Mapping[str, str]) -> list[str]:
    """The words of the command that logs in at other machines for git, as git-config(1) says at core.sshCommand."""
    import subprocess  # With what `ssh_url` loads these take 10 ms, which most commands do not need.

    from smartserver.client.ssh_url import of_shell

    command = environment.get("GIT_SSH_COMMAND", "")
    if not command:
        asking = ["git", "config", "--get", "core.sshCommand"]
        said = subprocess.run(
            asking, env=repository_environment(environment), stdout=subprocess.PIPE, check=False
        ).stdout
        command = os.fsdecode(said).strip()
    return of_shell(command) if command else [environment.get("GIT_SSH") or "ssh"]


def with_flags(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the debug flags of `git -c hpss.debug=FLAGS`."""
    if "hpss.debug" not in environment.get("GIT_CONFIG_PARAMETERS", "").lower():
        return environment
    import subprocess

    asking = ["git", "config", "--get", "hpss.debug"]
    said = subprocess.run(asking, env=repository_environment(environment), stdout=subprocess.PIPE, check=False).stdout
    return {**environment, VARIABLE: ",".join(filter(None, (environment.get(VARIABLE), os.fsdecode(said).strip())))}


def holder_of(url: str, environment: Mapping[str, str]) -> AgentHolder | None:
    """The keeper of the connections of a git command.

    Raises:
        BadUrl: it is not one, or one that may not be followed.
    """
    check_origin(url, environment)
    place = parse_place(url)
    return holder_for(place, login_of(place, environment, partial(ssh_of_git, environment)), environment)


def run(
    remote: str,
    url: str,
    environment: Mapping[str, str],
    at_end: contextlib.ExitStack,
    parent: int,
    holder: Holder | None,
    run_program: RunProgram,
) -> None:
    """Serve one git command; `at_end` is for what must be done at its end, where nothing interrupts.

    Raises:
        CannotGoOn, VcsError, CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag: it cannot go on.
    """
    try:
        check_origin(url, environment)
        environment = with_flags(environment)
        parse_place(url)
    except (BadUrl, BadFlag):
        if not sys.stdin.isatty():
            sys.stdin.buffer.read(1)  # Git would end by SIGPIPE if it wrote its first command after this program's end.
        raise

    def local() -> GitRepository | None:
        git_dir = environment.get("GIT_DIR")
        return GitRepository(git_dir, environment) if git_dir else None

    def say(words: str) -> None:
        sys.stderr.write(words if words.endswith(("\n", "\r")) else words + "\n")
        sys.stderr.flush()

    reader = proc_command_line if os.path.isdir("/proc/self") else ps_command_line

    def source(scheme: str, where: str) -> TokenSource:
        from smartserver.plugins.git.credentials import GitCredentials  # Loaded where a token is wanted.

        return GitCredentials(scheme, where, run_program)

    tool = Tool(f"git {AGENT}", partial(ssh_of_git, environment), source)
    with client_for(url, frozenset(), tool, environment, holder) as (client, location):
        with span(Part.LOCAL, "read git's command line"):
            hint = read(reader, parent)
        with span(Part.LOCAL, "read what is known"):
            known = Knowledge(cache_folder(environment), location.key)
        repository = RemoteRepository(client, location.path, known)
        git = GitRemote(remote, location, repository, local, hint, sys.stdin.buffer, sys.stdout.buffer, say)
        at_end.callback(git.close)
        client.progress = git.terminal.server_progress
        repository.advised = git.advised
        git.run()
