"""The work of `git-remote-hpss` after its imports: serve one git command, and print an error as one line on stderr."""

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
"""The exit status of a git command that failed."""

INTERRUPTED = 130

FALSE = ("0", "false", "no", "off", "")
"""The values of a variable that git treats as false."""


def serve(
    remote: str,
    url: str,
    environment: Mapping[str, str],
    *,
    parent: int,
    holder: Holder | None = None,
    run_program: RunProgram | None = None,
) -> int:
    """Serve one git command and return the exit status. After an interrupt, no error is printed. `parent`: the process
    id of git. `run_program`: runs a program at the user's terminal; by default `run_here`."""
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
    """Print an expected error as one line. Raise any other error again."""
    match error:
        case BrokenPipeError():
            return  # Git has ended, with its own message.
        case MediumError() | ProtocolError() | NotOurProtocol():
            place = "" if isinstance(error, CannotConnect) else f"{parse_place(url).where}: "
            line = f"{place}{plain(str(error))}"
        case VcsError() | CodedError():
            line = plain(in_words(error, parse_place(url)))
        case CannotGoOn() | BadUrl() | BadFlag():
            line = plain(str(error))
        case OSError():
            # Writes without a file name are to the repository.
            place = error.filename or environment.get("GIT_DIR") or "this machine"
            line = f"{place}: {error.strerror or error}"
        case _:
            raise error
    sys.stderr.write(f"fatal: hpss: {line}\n")


def is_of_user(environment: Mapping[str, str]) -> bool:
    """Tell whether git's user wrote the URL. Git sets GIT_PROTOCOL_FROM_USER (git(1)) to a false value for a URL from a
    repository, as that of a submodule."""
    return environment.get("GIT_PROTOCOL_FROM_USER", "1").lower() not in FALSE


def check_origin(url: str, environment: Mapping[str, str]) -> None:
    """Check a URL that the user of git did not write. Such a URL must not change how the server's identity is checked.

    Raises:
        BadUrl: the URL, which comes from a repository, would change that check.
    """
    said = parse_place(url).query
    if said and not is_of_user(environment):
        once = "run `smartserver trust`" if said.startswith("?ca=") else "log in there once with ssh"
        why = f"a URL from a repository (.gitmodules) must not contain {said}: {once}"
        raise BadUrl(url, f"{why}, so that the machine is known")


def run_here(
    environment: Mapping[str, str], words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool
) -> bytes:
    """Run a program on this process's terminal. Return its output; empty if it failed. `said`: the input of the
    program. `quiet`: True to drop its standard error."""
    import subprocess

    errors = subprocess.DEVNULL if quiet else None
    its = {**repository_environment(environment), **variables}
    try:
        done = subprocess.run(words, env=its, input=said, stdout=subprocess.PIPE, stderr=errors, check=False)
    except OSError:
        return b""
    return b"" if done.returncode else done.stdout


def ssh_of_git(environment: Mapping[str, str]) -> list[str]:
    """Return the words of git's ssh command, as git-config(1) describes at core.sshCommand."""
    import subprocess  # Imported late: it and `ssh_url` take 10 ms, and most commands do not need them.

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
    """Return the environment with the debug flags of `git -c hpss.debug=FLAGS` added."""
    if "hpss.debug" not in environment.get("GIT_CONFIG_PARAMETERS", "").lower():
        return environment
    import subprocess

    asking = ["git", "config", "--get", "hpss.debug"]
    said = subprocess.run(asking, env=repository_environment(environment), stdout=subprocess.PIPE, check=False).stdout
    return {**environment, VARIABLE: ",".join(filter(None, (environment.get(VARIABLE), os.fsdecode(said).strip())))}


def holder_of(url: str, environment: Mapping[str, str]) -> AgentHolder | None:
    """Return the agent as the holder of connections to the server of a URL; None if the agent cannot hold them.

    Raises:
        BadUrl: the URL is invalid, or refused by `check_origin`.
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
    """Serve one git command. `at_end`: takes the cleanup to run at the end without interrupts.

    Raises:
        CannotGoOn, VcsError, CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl, BadFlag: the command
            failed.
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
        from smartserver.plugins.git.credentials import GitCredentials  # Imported only if a token is needed.

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
