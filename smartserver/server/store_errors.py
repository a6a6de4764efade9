"""Turns an error of the store into an error that is useful to the client and to the server's administrator."""

from __future__ import annotations

import logging

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.server.site import RepositoryLocation
from smartserver.store.format import LOG, PACKS
from transports.errors import CodedError, NoSuchFile, TransportFailed

log = logging.getLogger("smartserver")

GONE = "does not exist"
"""The text for a missing served folder. Requests for its repositories get this text too, because the repositories were
not deleted one by one."""

NAMED_BY_A_STATE = (f"{PACKS}/", f"{LOG}/")


def user_error(error: CodedError, found: RepositoryLocation | None, served: str) -> CodedError:
    """Return the error to send to the client. `found`: the repository of the request; None if it was not looked up.
    `served`: the name of the served folder in messages.

    If the repository does not exist, the error describes the place instead, or says that the served folder is missing.
    A missing file that a state names is damage. Damage is logged, because a client cannot repair it, and the next
    request opens the files again. Other failures of the store are logged with the refusal (`server.request`).
    """
    if found is None:
        return error
    repository = found.repository
    if isinstance(error, (NoSuchFile, NoSuchRepository)) and not repository.has_root():
        return TransportFailed("", f"{served} {GONE}")
    if isinstance(error, NoSuchRepository) and error.path.strip("/") == repository.path:
        return NoSuchRepository(error.path, repository.describe_place())
    if isinstance(error, NoSuchFile) and found.exists:
        inner = error.path.removeprefix(f"{repository.path}/")
        if inner.startswith(NAMED_BY_A_STATE):
            error = CorruptFile(inner, 0, "the file is missing")
    if isinstance(error, CorruptFile):
        repository.distrust()
        log.warning("damage in %s: %s", repository.path or "the served folder", error)
    return error
