"""When a request is sent again. A repeat is safe: the request's id tells the server that it is one.

Only of file-level changes (VFS) no log can tell: they are not sent again once they may have been read.
"""

from __future__ import annotations

from smartserver.client.medium import ConnectionLost, MediumError
from smartserver.errors import (
    CorruptFile,
    InvalidName,
    NestedRepository,
    OutcomeUnknown,
    RepositoryError,
    RequestRefused,
)
from smartserver.wire.errors import RemoteProtocolError
from transports.errors import CodedError

PAUSES = (0.2, 1.0)
"""Seconds before the second and third sending; there is no fourth. A restarted server listens again within a second."""


def may_help(wrong: Exception, *, lost: bool, doubtful: bool, repeatable: bool = True) -> bool:
    """Whether to send again after a sending that got no answer.

    `lost`: an earlier one got none either. `doubtful`: one may have been carried out. `repeatable`: a server that got
    it twice would know.
    """
    if doubtful and not repeatable:
        return False
    match wrong:
        case ConnectionLost():
            return True
        case MediumError():
            return lost  # Who was there a moment ago may come back.
        case RemoteProtocolError():
            return doubtful  # The log of the repository may still tell.
        case _:
            return False


def tells_of_earlier(error: CodedError) -> bool:
    """Whether the refusal of a repeat says that no earlier sending was carried out either.

    Only the repository's log can tell. What is wrong with a change, or that there is no repository, is found after the
    log was read. Everything else may be found on the way to it: that the server is busy or a newer one, what the user
    may not do, a path that cannot be, a store that fails, damage. `Locked` comes after a look into the log, but the
    first sending may be in line for the same lock.
    """
    if isinstance(error, (CorruptFile, NestedRepository)):
        return False
    return isinstance(error, (RepositoryError, RequestRefused, InvalidName, OutcomeUnknown))
