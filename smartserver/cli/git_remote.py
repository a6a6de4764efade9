"""`git-remote-hpss`, `git-remote-hpss+ssh` and so on: the programs that git runs for the URLs of hpss.

The handler of ^C is set before slow imports.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 3 ms to each start.
import os
import sys

from smartserver.cli.streams import prepare_streams

USAGE = """usage: git-remote-hpss REMOTE URL

Git runs this for URLs that begin with hpss://, hpss+tls://, hpss+ssh://, hpss+sftp://, hpss+s3:// or hpss+vfs://; there
is no need to run it by hand.

    git clone hpss://example.org/project
    git push hpss://localhost/project main
    git clone hpss+tls://example.org/project                   encrypted
    git clone hpss+ssh://me@example.org/srv/code/project       where smartserver is installed
    git clone hpss+sftp://me@example.org/srv/code/project      where only ssh is
    git clone hpss+s3://bucket/project                         in a bucket of an S3 store
    SMARTSERVER_DEBUG=hpss git fetch      show each call of the protocol on stderr
    SMARTSERVER_DEBUG=hpss-ban=silly git fetch   fail where it asks for what it need not
    SMARTSERVER_FAST_OPEN=1 git push      save a round trip where the server has --fast-open
    SMARTSERVER_AGENT=0 git push          without the agent, which holds connections between commands
    SMARTSERVER_TOKEN=example.org=hpss_... git push   with this token for that server; else git credential has one
"""


def main() -> None:
    """Serve git on this process's streams and exit."""
    prepare_streams()
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        sys.exit(0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # A shell ignores it for commands in the background.
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # During imports there is nothing to undo or to print.
    words = [os.fsencode(word) for word in sys.argv[1:]]
    status = _by_agent(words)
    if status is None:
        from smartserver.cli.git_remote_run import serve

        # A URL is UTF-8 in every locale. Otherwise it would name different places in different locales.
        remote, url = [word.decode("utf-8", "surrogateescape") for word in words]
        status = serve(remote, url, os.environ, parent=os.getppid())
    # Skip Python's own exit, which would try to flush output that git no longer reads.
    os._exit(status)


def _by_agent(words: list[bytes]) -> int | None:
    """Let the user's agent serve git. Return the exit status, or None if this process must serve git."""
    url = words[1].lower()
    # The other schemes start programs, which may need this terminal. Git's traces need descriptors of this process.
    if not url.startswith((b"hpss://", b"hpss+tls://", b"hpss+ssh://")) or any(
        name.startswith(b"GIT_TRACE") and value.isdigit() and int(value) > 2 for name, value in os.environb.items()
    ):
        return None
    from smartserver.agent.address import is_wanted

    if not is_wanted(os.environ):
        return None
    from smartserver.agent.thin import hand_over

    return hand_over(words, os.environb)


if __name__ == "__main__":
    main()
