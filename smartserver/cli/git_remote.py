"""`git-remote-hpss`: what git runs for hpss:// URLs. It starts in the time of a bare interpreter and three imports."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from smartserver.client.call import Client, NotOurProtocol
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.medium import MediumError
from smartserver.client.repository import RemoteRepository
from smartserver.client.url import BadUrl, parse
from smartserver.plugins.git import CannotGoOn, GitRemote
from smartserver.plugins.git_hint import proc_command_line, ps_command_line, read
from smartserver.trace import text
from smartserver.vcs.base import VcsError
from smartserver.vcs.git import GitRepository
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError

USAGE = """usage: git-remote-hpss REMOTE URL

Git runs this for URLs that begin with hpss://; there is no need to run it by hand.

    git clone hpss://example.org/project
    git push hpss://localhost/project main
    SMARTSERVER_DEBUG=hpss git fetch      show each call of the protocol on stderr
"""

FAILED = 128
"""Exit status of a git command that could not go on."""

INTERRUPTED = 130


def cache_folder(environment: Mapping[str, str]) -> str | None:
    """Where knowledge of remotes is kept: XDG's cache folder; None where the user has no home."""
    base = environment.get("XDG_CACHE_HOME")
    if not base or not os.path.isabs(base):
        home = environment.get("HOME")
        if not home:
            return None
        base = os.path.join(home, ".cache")
    return os.path.join(base, "smartserver", "remotes")


def main() -> None:
    """Run the helper on this process's streams; what goes wrong is one line on stderr."""
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        sys.exit(0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2)
    try:
        run(sys.argv[1], sys.argv[2], os.environ)
    except KeyboardInterrupt:
        _leave(INTERRUPTED)
    except BrokenPipeError:
        _leave(FAILED)  # Git is gone, and has said why.
    except (CannotGoOn, VcsError, CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl) as wrong:
        sys.stderr.write(f"fatal: hpss: {wrong}\n")
        _leave(FAILED)
    except OSError as wrong:
        sys.stderr.write(f"fatal: hpss: {wrong.filename or 'this machine'}: {wrong.strerror or wrong}\n")
        _leave(FAILED)


def _leave(status: int) -> None:
    """End without the interpreter's own attempts to flush what git no longer reads."""
    sys.stderr.flush()
    os._exit(status)


def run(remote: str, url: str, environment: Mapping[str, str]) -> None:
    """Serve one git command.

    Raises:
        CannotGoOn, VcsError, CodedError, MediumError, ProtocolError, NotOurProtocol, BadUrl: it cannot go on.
    """
    location = parse(url)
    debug = "hpss" in environment.get("SMARTSERVER_DEBUG", "").split(",")
    recorder = text.printing(lambda line: print(line, file=sys.stderr, flush=True)) if debug else None

    def connect() -> TcpMedium:
        if recorder is not None:
            recorder.connected()
        return TcpMedium(location.host, location.port)

    def local() -> GitRepository | None:
        git_dir = environment.get("GIT_DIR")
        return GitRepository(git_dir, environment) if git_dir else None

    def say(words: str) -> None:
        sys.stderr.write(words if words.endswith(("\n", "\r")) else words + "\n")
        sys.stderr.flush()

    reader = proc_command_line if os.path.isdir("/proc/self") else ps_command_line
    hint = read(reader, os.getppid())
    observers = [recorder] if recorder is not None else []
    with Client(connect, observers, agent="git") as client:
        repository = RemoteRepository(client, location.path, Knowledge(cache_folder(environment), location.key))
        git = GitRemote(remote, location.path, repository, local, hint, sys.stdin.buffer, sys.stdout.buffer, say)
        client.progress = git.server_progress
        try:
            git.run()
        finally:
            if recorder is not None:
                say(text.summary(recorder, time.monotonic()))


if __name__ == "__main__":
    main()
