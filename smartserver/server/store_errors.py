"""An error of the store in words its client can make something of, and its server's administrator too."""

from __future__ import annotations

import logging

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.server.site import RepositoryLocation
from smartserver.store.format import LOG, PACKS
from transports.errors import CodedError, NoSuchFile, TransportFailed

log = logging.getLogger("smartserver")

GONE = "is not there"
"""The words for a served place that is missing, and for a repository that was in it: nobody deleted that one by
itself."""

NAMED_BY_A_STATE = (f"{PACKS}/", f"{LOG}/")


def user_error(error: CodedError, found: RepositoryLocation | None, served: str) -> CodedError:
    """The error as it is sent; `found`: the repository the request is about, None as long as nobody looked for it.
    `served`: what the folder that is served is called.

    No repository: with what is there instead, or that the served folder itself is gone. A missing file that a state
    names is told as damage. Damage is logged, since a client cannot mend it, and the next request opens the files
    again. Other failures of the store are logged with the refusal (`server.request`).
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
        log.warning("%s is damaged: %s", repository.path or "the served folder", error)
    return error
