"""Git over ssh: a forced command answers `git-upload-pack` and `git-receive-pack`, so that `git@host:project` works.

sshd starts a process for each command, which serves it on standard input and output and ends. There is no reactor: all
work is done in sequence.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from smartserver.gateway import git_programs
from smartserver.gateway.gateway import Gateway, Visitor
from smartserver.gateway.git_command import GitCommand, Service
from smartserver.gateway.pkt_line import BadRequest, error_line
from smartserver.gateway.receive import Receive, advertisement, read_request, reader
from smartserver.gateway.updates import EXPECTED
from smartserver.server.executor import NOBODY, InlineExecutor, Lane, T
from smartserver.server.fair import Tenant

log = logging.getLogger("smartserver")

STDIN, STDOUT, STDERR = 0, 1, 2

FAILED = 128
"""The exit status of git's programs after an error message."""


class LaterExecutor(InlineExecutor):
    """Runs at once the work that a client waits for, and upkeep at the end."""

    def __init__(self) -> None:
        self._later: list[Callable[[], object]] = []

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` and `done` at once. Store upkeep for `finish`."""
        if lane in (Lane.UPKEEP, Lane.LONG):
            self._later.append(work)
        else:
            done(work())

    def finish(self) -> None:
        """Run the stored upkeep."""
        while self._later:
            self._later.pop(0)()


def serve(gateway: Gateway, visitor: Visitor, asked: GitCommand, protocol: str) -> int:
    """Serve one client on standard input and output. Return the exit status. `protocol`: the value of GIT_PROTOCOL, if
    sshd passes it."""
    try:
        if asked.service is Service.UPLOAD_PACK:
            return _upload_pack(gateway, visitor, asked.path, protocol)
        gateway.may_push(visitor, asked.path)
        _write(b"".join(advertisement(gateway.state_to_push(visitor, asked.path))))
        request = read_request(reader(STDIN))
        _write(Receive(gateway, visitor, asked.path, request).run(STDIN))
    except (BadRequest, *EXPECTED) as error:
        text = gateway.words(error)
        log.info("%s: %s: %s", visitor.peer, asked.service, text)
        _write(error_line(text))
        return FAILED
    return 0


def _upload_pack(gateway: Gateway, visitor: Visitor, path: str, protocol: str) -> int:
    gateway.may_fetch(visitor, path)
    state = gateway.state(visitor, path)
    lease = gateway.lease(path, state) or gateway.bring(path)
    try:
        process = git_programs.start_upload_pack(
            lease.folder,
            lease.descriptor,
            git_programs.protocol_of(protocol),
            stdin=STDIN,
            stdout=STDOUT,
            stderr=STDERR,
        )
    finally:
        lease.close()  # The program has its own descriptor.
    return process.wait()


def _write(content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(STDOUT, view) :]
