"""The rules for sending a request again. A repeat is safe, because the server knows it by the request's id.

File-level changes (VFS) are in no log, so they are not sent again once the server may have read them.
"""

from __future__ import annotations

from smartserver.client.medium import ConnectionLost, MediumError
from smartserver.wire.errors import RemoteProtocolError

PAUSES = (0.2, 1.0)
"""Seconds before the second and third sending. A sending lost on a held connection is repeated at once and uses none of
these, so there may be four sendings. A restarted server listens again within a second."""


def may_help(error: Exception, *, lost: bool, doubtful: bool, repeatable: bool = True) -> bool:
    """Tell whether a retry may help after a sending that got no answer.

    `lost`: an earlier sending got no answer either. `doubtful`: a sending may have been carried out. `repeatable`: the
    server would recognize a repeat.
    """
    if doubtful and not repeatable:
        return False
    match error:
        case ConnectionLost():
            return True
        case MediumError():
            return lost  # A server that was there a moment ago may come back.
        case RemoteProtocolError():
            return doubtful  # The log of the repository may have the answer.
        case _:
            return False
